"""The database file seen from outside: creating it, its permissions, whose it is, the file system it is on.

Nothing here opens the database, its -wal or its -shm while a connection of this process has them open: closing any
descriptor of a file drops all POSIX locks that the process has on it. `os.stat` and `os.chmod` are harmless, and
looking into the header goes through SQLite's own file layer, which knows of its locks.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import apsw

from holdfast.base import system
from holdfast.errors import ForkedConnection, StoreError
from holdfast.store import forks
from holdfast.store.queries import load_queries
from holdfast.store.sqlite.owners import Owners

#: Marks our files: "Hfst".
APPLICATION_ID = 0x48667374

_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "fuse",
    "ceph",
    "glusterfs",
    "afs",
    "virtiofs",
    "vboxsf",
    "ncpfs",
    "lustre",
    "ocfs2",
    "gfs2",
    "afpfs",  # from here on as macOS calls them
    "webdav",
    "macfuse",
    "osxfuse",
)


def prepare_folder(path: str, owners: Owners) -> None:
    """Create the directory of a store where it is missing, for its owners only, whatever the umask."""
    missing = []
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        owners.make_folder(folder)
        sync_folder(os.path.dirname(folder))
    if os.path.isdir(path):
        raise StoreError(f"{path} is a directory; name a file in it.")


def prepare_file(path: str, owners: Owners) -> None:
    """Create the file where it is missing, readable by its owners only. The caller holds the opening lock."""
    owners.check_files(path)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        sync_folder(os.path.dirname(path))
    owners.tighten(path)


def sync_folder(folder: str) -> None:
    """Make a new entry survive power loss: syncing the file alone does not promise that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            system.sync(descriptor)
        finally:
            os.close(descriptor)


def in_forked_child(path: str, pid: int) -> ForkedConnection:
    """The error of whoever uses, in another process, what this one opened."""
    return ForkedConnection(
        f"{path} was opened by process {pid}, and this is its forked child {os.getpid()}. "
        "Connect again in the child, or fork before connecting."
    )


def check_not_inherited(path: str) -> None:
    """Raise ForkedConnection if an ancestor process had this file open when it forked."""
    status = os.stat(path)
    if forks.is_inherited((status.st_dev, status.st_ino)):
        raise ForkedConnection(
            f"{path} was open in the process that forked this one, and SQLite cannot open it safely in the child: it "
            "would believe to hold locks that only the parent has. Connect after the fork, or start the child with "
            "the `spawn` method."
        )


def check_ours(path: str) -> None:
    """Raise StoreError if the file is somebody else's; changes nothing.

    Looks at the header only. The rest may be half of a checkpoint that was cut off, which the log makes whole; a hot
    journal means that the very first transaction was cut off.
    """
    journal = f"{path}-journal"
    if os.path.exists(journal) and os.stat(journal).st_size:
        return
    size = os.stat(path).st_size
    header = read_header(path) if size else b""
    if size and not header.startswith(b"SQLite format 3\x00"):
        raise StoreError(f"{path} is not a database; nothing was changed. Use another path.")
    marked = int.from_bytes(header[68:72], "big")
    if size and marked != APPLICATION_ID:
        raise StoreError(
            f"{path} is a SQLite database of another program (application id {marked:#x}); nothing was changed. "
            "Use another path."
        )


def read_header(path: str) -> bytes:
    """The first bytes of a database, read without dropping locks that this process has on it."""
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
    file = apsw.VFSFile("", os.path.realpath(path), [flags, 0])  # it follows no links
    try:
        return file.xRead(100, 0)
    finally:
        file.xClose()


def mark_as_ours(connection: apsw.Connection, path: str) -> None:
    """Mark a new file. Before it has a log: the mark must be in the file itself, where `check_ours` looks."""
    if connection.pragma("application_id") == APPLICATION_ID:
        return
    if connection.execute(load_queries("sqlite")["has_tables"]).get:
        raise StoreError(f"{path} is a SQLite database of another program. Use another path.")
    connection.pragma("application_id", APPLICATION_ID)


def distrust_schema(connection: apsw.Connection) -> None:
    """Whoever could write the file could plant what is in its schema: it can do no more than compute."""
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)


def only_read(connection: apsw.Connection) -> None:
    """A connection that looks at tables and changes nothing: a view in the place of one is refused."""
    distrust_schema(connection)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.pragma("query_only", True)


def uri(path: str, query: str) -> str:
    return f"{Path(path).as_uri()}?{query}"


def network_file_system(path: str) -> str | None:
    """The name of the file system if it is one that SQLite's locks and shared memory do not work on."""
    found = system.file_system_of(path)
    return found if found is not None and found.startswith(_NETWORK) else None


def close_quietly(connection: apsw.Connection, *, checkpoint: bool) -> None:
    """Close a connection that may be unusable; without `checkpoint` it leaves the log alone, even as the last one."""
    with contextlib.suppress(apsw.Error, OSError):
        if not checkpoint:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(force=True)
