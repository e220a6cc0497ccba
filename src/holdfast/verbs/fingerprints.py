"""Fingerprints that are ready made: `hf.guards.file`, `.directory`, `.git`, `.url`.

Their text is for people, too: a receipt tells what it was and what it is. They are taken in a thread of their own.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import UsageError

_PIECE: Final = 1 << 20
_LISTED: Final = 80  # files of a directory that are told one by one
_NAMED: Final = 60  # characters of a path there
_LONGEST_PAGE: Final = 64 << 20
_TIMEOUT_S: Final = 30.0


class FingerprintMakers:
    """What `hf.guard` can look at without a function of your own.

    Example: `await hf.guard("repo", hf.guards.git("."), on_change="block")`
    """

    @staticmethod
    def file(path: str | os.PathLike[str]) -> Callable[[], str]:
        """The content of a file, or that there is none.

        Example: `hf.guards.file("spec.md")`
        """
        return lambda: _file(Path(path))

    @staticmethod
    def directory(path: str | os.PathLike[str]) -> Callable[[], str]:
        """The names and contents of all files below a directory; links are not followed.

        Example: `hf.guards.directory("docs")`
        """
        return lambda: _directory(Path(path))

    @staticmethod
    def git(path: str | os.PathLike[str] = ".") -> Callable[[], str]:
        """The branch, the commit, and what is not committed in a working copy.

        Example: `hf.guards.git("repo")`
        """
        return lambda: _git(os.fspath(path))

    @staticmethod
    def url(url: str) -> Callable[[], str]:
        """What a page says of its version (ETag, Last-Modified), else its content; also that there is none.

        Example: `hf.guards.url("https://example.org/prices")`
        """
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
            raise UsageError("hf.guards.url() takes a url that begins with http:// or https://.")
        if "@" in urlsplit(url).netloc:  # which the library would take for a part of the host, and quote in its error
            raise UsageError(
                "hf.guards.url() takes a url without a name and password in it. Give hf.guard() a function of your "
                "own, which signs in."
            )
        return lambda: _url(url)


guards: Final = FingerprintMakers()


def _file(path: Path) -> str:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"hf.guards.file({os.fspath(path)!r}): that is a directory; use hf.guards.directory().")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"hf.guards.file({os.fspath(path)!r}): that is no file.")
    return f"{found.st_size} bytes, sha256 {_digest(path)[:16]}"


def _digest(path: Path) -> str:
    sums = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            sums.update(piece)
    return sums.hexdigest()


def _directory(path: Path) -> str:
    if not path.is_dir():
        return "missing"
    entries = [*_entries(path)]
    whole = hashlib.sha256("\n".join(entries).encode("utf-8", "surrogateescape")).hexdigest()
    listed = [each if len(each) <= _NAMED + 20 else f"…{each[-_NAMED - 20 :]}" for each in entries[:_LISTED]]
    return "\n".join([f"{len(entries)} files, sha256 {whole[:16]}", *(listed if len(entries) <= _LISTED else ())])


def _entries(top: Path) -> Iterator[str]:
    """One line for each file, in order: its path, and what it is."""
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted([*files, *(each for each in folders if os.path.islink(os.path.join(folder, each)))]):
            path = Path(folder, name)
            shown = path.relative_to(top).as_posix()
            if path.is_symlink():
                yield f"{shown} -> {os.readlink(path)}"
            elif path.is_file():
                yield f"{shown} {_digest(path)[:12]}"


def _git(path: str) -> str:
    def ask(*words: str) -> bytes:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", path, *words],  # noqa: S607
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
        if done.returncode:
            raise OSError(done.stderr.decode("utf-8", "replace").strip() or f"git ended with {done.returncode}")
        return done.stdout

    try:
        head = ask("rev-parse", "--verify", "HEAD").decode().strip()[:12]
    except OSError:
        ask("rev-parse", "--git-dir")  # raises if there is no repository
        head = "no commit"
    branch = ask("branch", "--show-current").decode("utf-8", "surrogateescape").strip() or "no branch"
    lines = [f"{branch} at {head}"]
    changed = ask("status", "--porcelain", "-z")
    if changed:
        sums = hashlib.sha256(changed)
        if head != "no commit":
            sums.update(ask("diff", "HEAD", "--binary"))
        for name in _untracked(changed):
            file = Path(path, name)
            if file.is_file():
                sums.update(_digest(file).encode())
        lines.append(f"{changed.count(0)} not committed, sha256 {sums.hexdigest()[:16]}")
    return "\n".join(lines)


def _untracked(status: bytes) -> list[str]:
    return [os.fsdecode(each[3:]) for each in status.split(b"\0") if each.startswith(b"?? ")]


def _url(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http and https only
            for name in ("ETag", "Last-Modified"):
                if said := answer.headers.get(name):
                    return f"{name} {said[:200]}"
            body = answer.read(_LONGEST_PAGE)
            return f"{len(body)} bytes, sha256 {hashlib.sha256(body).hexdigest()[:16]}"
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise
        return f"status {error.code}"
