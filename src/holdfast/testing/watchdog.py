"""Ends a test's PostgreSQL server when the process that started it has died, however it died.

    python -I -S watchdog.py PARENT DATA [FOLDER]

It looks whether its parent is still PARENT, so nothing that other processes inherit keeps it waiting, and no thread of
the parent has to live. DATA is the server's data folder; FOLDER is removed in the end. It is a file of its own, and
imports nothing of Holdfast, so that it starts in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_LOOK_S = 0.1
_PATIENCE_S = 5.0
_REMOVE = 0  # IPC_RMID


def note_of(data: Path) -> list[str]:
    """The lines of the server's own note about itself: pid, folder, …, key and id of shared memory, state."""
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def free_memory(data: Path) -> None:
    """Remove the piece of shared memory that a server which was killed has left."""
    note = note_of(data)
    if len(note) > 6:
        # Refused while processes are attached? No: it goes with the last of them.
        ctypes.CDLL(None).shmctl(int(note[6].split()[1]), _REMOVE, None)


def end(data: Path) -> None:
    """Stop a server at once, and leave nothing of it in memory."""
    give_up = time.monotonic() + _PATIENCE_S
    number = signal.SIGQUIT
    while len(note := note_of(data)) > 0:
        with suppress(ValueError):
            try:
                os.kill(int(note[0]), number)
            except ProcessLookupError:
                free_memory(data)
                return
        if time.monotonic() > give_up:
            number = signal.SIGKILL
        time.sleep(_LOOK_S)


def main(arguments: list[str]) -> None:
    parent, data = int(arguments[0]), Path(arguments[1])
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    for _ in range(10):  # it may be about to write its note
        if note_of(data):
            break
        time.sleep(_LOOK_S)
    end(data)
    for folder in arguments[2:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
