"""The token of a store: a file that its owner alone can read. Whoever can read it, could read the store."""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
from pathlib import Path
from typing import Final

from holdfast.base.config import DEFAULT_PATH
from holdfast.base.ids import new_token
from holdfast.errors import UsageError

_LEAST: Final = 32


def token_path(url: str) -> Path:
    """Where the token of a store is: beside a SQLite file, else where a store would be by default."""
    path = url.removeprefix("sqlite:///")
    if "://" in path:
        return Path(DEFAULT_PATH).parent / "server.token"
    return Path(f"{path}.token")


def token_in(path: Path) -> str:
    """The token in a file, which is made if it is missing; UsageError if others can read it."""
    with contextlib.suppress(FileExistsError):
        _make(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"The token file {path} cannot be read: {error.strerror}.") from error
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
            raise UsageError(f"The token file {path} is not a file of yours; remove it, and a new one is made.")
        if status.st_mode & 0o077:
            raise UsageError(
                f"The token file {path} can be read or written by others (mode {stat.S_IMODE(status.st_mode):o}), so "
                "the token is known. Remove it, and a new one is made."
            )
        token = file.read(4096).strip()
    if len(token) < _LEAST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"The token file {path} has no token of at least {_LEAST} characters; remove it for a new one."
        )
    return token


def _make(path: Path) -> None:
    """A new token, in one step: another process sees all of it, or none."""
    if path.is_symlink() or path.exists():
        raise FileExistsError
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            os.write(descriptor, f"{new_token()}\n".encode())
            os.fsync(descriptor)
            os.link(half, path)
        finally:
            os.close(descriptor)
            half.unlink()
    except FileExistsError:
        raise
    except OSError as error:
        raise UsageError(
            f"The token file {path} cannot be made: {error.strerror}. Name one with --token-file."
        ) from error


def is_same_token(given: str, known: str) -> bool:
    """However long it takes, it takes as long for every token."""
    return hmac.compare_digest(given.encode(), known.encode())
