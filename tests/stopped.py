"""Whether a process was stopped by itself or by its test, and not by a busy machine that keeps it still for a moment.

`tests.soak` plays such a machine: it stops processes at random, and names the one in a file.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Names the file.
STILL = "HOLDFAST_TEST_STILL"


def is_stopped(pid: int) -> bool:
    """Does it stand still until somebody sends it SIGCONT?"""
    return not _is_kept_still(pid) and state(pid) in "tT" and not _is_kept_still(pid)


def state(pid: int) -> str:
    """As Linux names it: R, S, D, T …; X if there is no such process (any more)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _is_kept_still(pid: int) -> bool:
    path = os.environ.get(STILL)
    return path is not None and os.path.exists(path) and Path(path).read_text() == str(pid)
