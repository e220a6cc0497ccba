"""Whose the files of a store are. Whoever can write or replace them decides what runs did, and who is taken for dead.

So a file is used only if it belongs to the user of this process, or to root, and is no link; what is too open is shut.
A store that several users work with belongs to a group: `Settings(shared_group=…)` or `HOLDFAST_SHARED_GROUP`. Then
files of that group are used whoever made them, and its members can read and write them.

All of this is looked at when a store is opened, never on the way of a commit.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat

from holdfast.base.config import GROUP
from holdfast.errors import StoreError, UsageError

_BESIDE = ("", "-wal", "-shm", "-journal")


def open_unlinked(path: str, flags: int) -> int:
    """`os.open` of what the path names itself: a link is refused, and nothing is waited for."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


class Owners:
    """Who may own the files of one store."""

    def __init__(self, group: str = "") -> None:
        self._gid = _gid_of(group) if group else None
        self._file_mode, self._folder_mode = (0o600, 0o700) if self._gid is None else (0o660, 0o2770)
        self._others = 0o077 if self._gid is None else 0o007  # what nobody else may do

    def trusts(self, status: os.stat_result) -> bool:
        return status.st_uid in (os.geteuid(), 0) or (self._gid is not None and status.st_gid == self._gid)

    def check(self, path: str, status: os.stat_result, *, is_folder: bool = False) -> None:
        """Raise StoreError if this is not a file, or directory, that the store may use."""
        if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(status.st_mode):
            what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not what it should be"
            raise StoreError(
                f"{path} is {what}, and not a {'directory' if is_folder else 'file'} of the store; nothing was "
                "changed. Find out who put it there, and remove it, or use another path."
            )
        if not self.trusts(status):
            raise StoreError(
                f"{path} belongs to {user_name(status.st_uid)}, and this process runs as {user_name(os.geteuid())}. "
                "Its owner decides what is in it, so nothing was done. Run as that user, use another path, or have an "
                f"administrator give it to you (chown). Users who share a store need a group: {GROUP}=NAME."
            )

    def check_files(self, path: str) -> None:
        """The same for a database and all that SQLite keeps next to it, as far as they are there."""
        for suffix in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                self.check(f"{path}{suffix}", os.lstat(f"{path}{suffix}"))

    def open(self, path: str, flags: int) -> int:
        """Open a file of the store; one that is made, or is too open, gets its mode."""
        try:
            descriptor = open_unlinked(path, flags)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self.check(path, os.lstat(path))
            raise
        try:
            status = os.fstat(descriptor)
            self.check(path, status)
            if flags & os.O_ACCMODE != os.O_RDONLY:
                self._fit(descriptor, status, self._file_mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def make_folder(self, path: str) -> None:
        """Make a directory where it is missing, whatever the umask."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            self._fit(path, os.lstat(path), self._folder_mode)

    def take_folder(self, path: str) -> None:
        """Make a directory that only the store uses, or take the one that is there."""
        self.make_folder(path)
        status = os.lstat(path)
        self.check(path, status, is_folder=True)
        self._fit(path, status, self._folder_mode)

    def tighten(self, path: str) -> None:
        """Take from others their access to a database and what SQLite keeps next to it."""
        for suffix in _BESIDE:
            with contextlib.suppress(OSError):
                status = os.lstat(f"{path}{suffix}")
                if stat.S_ISREG(status.st_mode):
                    self._fit(f"{path}{suffix}", status, self._file_mode)

    def _fit(self, file: str | int, status: os.stat_result, mode: int) -> None:
        if status.st_uid != os.geteuid():
            return  # its owner does that
        with contextlib.suppress(OSError):  # a file system without owners or modes
            if self._gid is not None and status.st_gid != self._gid:
                os.chown(file, -1, self._gid)
            if (self._gid is not None and stat.S_IMODE(status.st_mode) != mode) or status.st_mode & self._others:
                os.chmod(file, mode)

    def foreign(self, path: str, directory: str) -> list[str]:
        """Which of a database, its directory of locks, and the directory around both are somebody else's."""
        found = []
        for name in (*_files(path, directory), os.path.dirname(path)):
            with contextlib.suppress(OSError):
                status = os.lstat(name)
                if not self.trusts(status):
                    found.append(f"{name} belongs to {user_name(status.st_uid)}, not to {user_name(os.geteuid())}")
        return found

    def too_open(self, path: str, directory: str) -> list[str]:
        """Which of them others can read, or replace."""
        found = []
        for name in _files(path, directory):
            with contextlib.suppress(OSError):
                mode = stat.S_IMODE(os.lstat(name).st_mode)
                if mode & self._others:
                    found.append(
                        f"{name} can be accessed by others (mode {mode:04o}); make it {mode & ~self._others:04o}"
                    )
        around = os.path.dirname(path)
        mode = stat.S_IMODE(os.stat(around).st_mode)
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            found.append(f"{around} can be accessed by others (mode {mode:04o}), who can replace what is in it")
        return found


def _files(path: str, directory: str) -> list[str]:
    return [*(f"{path}{suffix}" for suffix in _BESIDE), directory]


def user_name(uid: int) -> str:
    """A user, for people."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _gid_of(group: str) -> int:
    try:
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise UsageError(
            f"There is no group {group!r}, which {GROUP} or shared_group= names; `getent group` lists them."
        ) from None
