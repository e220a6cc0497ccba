"""Driver errors in words that say which file and what to do. The only place that translates them."""

from __future__ import annotations

import errno
import os

import apsw

from holdfast.errors import HoldfastError, StoreCorrupt, StoreError, StoreFull

#: Errors that concern the file, the disk or the machine, and so every write of a batch alike.
SYSTEMIC = (
    apsw.FullError,
    apsw.IOError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.ProtocolError,
    apsw.NoMemError,
    apsw.AuthError,
    apsw.PermissionsError,
    OSError,
)


def is_full(error: BaseException) -> bool:
    """No space, whether SQLite or the system says so."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, apsw.FullError)


def explain(error: BaseException, path: str) -> StoreError:
    """The error to raise for a driver error."""
    if isinstance(error, StoreError):
        return error
    detail = str(error).removeprefix(f"{type(error).__name__}: ")
    if is_full(error):
        return StoreFull(
            f"No space left to write {path} ({detail}). Free some space; waiting appends then go on by themselves."
        )
    match error:
        case UnicodeDecodeError():
            return StoreCorrupt(
                f"{path} holds text that is none ({detail}), so it was damaged or changed by something else. "
                "Run `holdfast doctor`, and restore a backup."
            )
        case apsw.NotADBError():
            return StoreCorrupt(
                f"{path} is not a SQLite database, or its first page is damaged ({detail}). "
                "Restore a backup or use another path."
            )
        case apsw.CorruptError():
            return StoreCorrupt(
                f"{path} is damaged ({detail}). Stop all workers, copy the file with its -wal and -shm away, "
                "run `holdfast verify`, and restore a backup."
            )
        case apsw.ReadOnlyError():
            return StoreError(
                f"{path} cannot be written ({detail}; {_modes(path)}). "
                "Make the file and its directory writable, or open it read-only."
            )
        case apsw.CantOpenError() | PermissionError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreError(
                f"{path} cannot be opened ({detail}; {_modes(path)}). "
                "Check that the file and its directory exist and are accessible."
            )
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return StoreError(
                f"{path} has been locked by another process for too long ({detail}). "
                f"Look for a stopped or hung process: `fuser {path}`."
            )
        case apsw.IOError() | OSError():
            return StoreError(
                f"Reading or writing {path} failed ({detail}). Check the disk and the kernel log (`dmesg`); "
                "nothing was assumed to be stored."
            )
        case _:
            return StoreError(f"{path}: {type(error).__name__}: {detail}")


def _modes(path: str) -> str:
    words = []
    for name, what in ((path, "file"), (os.path.dirname(path) or ".", "directory")):
        try:
            status = os.stat(name)
            words.append(f"{what} mode {status.st_mode & 0o7777:04o} owner {status.st_uid}")
        except OSError as error:
            words.append(f"{what}: {error.strerror}")
    return ", ".join(words) + f", we are user {os.geteuid()}"


def as_store_error(error: Exception, path: str) -> HoldfastError:
    """The error itself, if it is one of ours; else what explains it."""
    if isinstance(error, HoldfastError):
        return error
    explained = explain(error, path)
    explained.__cause__ = error
    return explained
