"""What stands for the contents of files, read in slices. Blocks; called in a thread.

A large file must neither keep others waiting nor the process from ending. So each slice takes a bounded time, the small
files come first, and what is not done with goes on in the next slice, where it was. No file is open between slices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from hashlib import blake2b
from time import monotonic
from typing import Final

from holdfast.automation.triggers.scanning import Folder, Stat, stat_of
from holdfast.store.sqlite.guard import own_files

#: How long a slice takes.
SLICE_S: Final = 0.25

_CHUNK: Final = 1 << 20

#: None: the file is not as it was when it was looked at.
Digest = str | OSError | None


class Contents:
    """The contents of files that are being read."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._begun: dict[str, _Reading] = {}

    def read(self, files: Iterable[tuple[str, Stat]], is_stopped: Callable[[], bool]) -> dict[str, Digest]:
        """Read for a slice of time; the digests of those that are done with. The others are to be asked for again."""
        give_up = monotonic() + SLICE_S
        is_over = lambda: is_stopped() or monotonic() > give_up  # noqa: E731
        done: dict[str, Digest] = {}
        for reading in sorted((self._of(path, stat) for path, stat in files), key=lambda each: each.left):
            if not is_stopped() and reading.read(self._folder, is_over):
                done[reading.path] = reading.found
                self._begun.pop(reading.path, None)
            else:
                self._begun[reading.path] = reading
        return done

    def keep(self, paths: Container[str]) -> None:
        """Forget what was begun of other files: they have changed since, or are gone."""
        self._begun = {path: reading for path, reading in self._begun.items() if path in paths}

    def _of(self, path: str, stat: Stat) -> _Reading:
        begun = self._begun.get(path)
        return begun if begun is not None and begun.expected == stat else _Reading(path, stat)


class _Reading:
    """One file as far as it is read."""

    def __init__(self, path: str, expected: Stat) -> None:
        self.path = path
        self.expected = expected
        self.place = 0
        self.found: Digest = None
        self._hash = blake2b(digest_size=16)

    @property
    def left(self) -> int:
        return self.expected.size - self.place

    def read(self, folder: Folder, is_over: Callable[[], bool]) -> bool:
        """Go on until it is over; whether the file is done with."""
        if self.expected.inode in own_files():  # reading them would drop the store's locks
            return True
        try:
            with open(folder.opened(self.path), "rb", buffering=0) as file:
                file.seek(self.place)
                while stat_of(os.fstat(file.fileno())) == self.expected:
                    chunk = file.read(_CHUNK)
                    if not chunk:
                        self.found = self._hash.hexdigest()
                        return True
                    self._hash.update(chunk)
                    self.place += len(chunk)
                    if self.left > 0 and is_over():
                        return False
                return True
        except FileNotFoundError:
            return True
        except OSError as error:
            self.found = error
            return True
