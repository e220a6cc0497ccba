"""People with tokens of their own, and their roles: a file, `users.toml`.

    payloads = "operator"          # who may read what runs stored; by default every viewer

    [[users]]
    name = "ana"
    role = "operator"
    hash = "scrypt$…"              # of the token; a name without one signs in through a proxy

The file is looked at again when it has changed: who is taken out of it is out.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import re
import stat
import tomllib
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

from holdfast.base.data import data
from holdfast.base.ids import new_token, random_bytes
from holdfast.base.telemetry import warn
from holdfast.errors import UsageError
from holdfast.server.security.people import Role

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_@+-]{0,63}")
_COST: Final = (2**14, 8, 1)
_KEPT: Final = 1000


@data
class User:
    """Somebody in the file."""

    name: str
    role: Role
    hash: str


class Users:
    """The people of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._users: dict[str, User] = {}
        self._payloads = Role.viewer
        self._proven: OrderedDict[bytes, str] = OrderedDict()  # marks of tokens, and the hash that they fit
        self._key = new_token().encode()
        self._read()

    def find(self, name: str) -> User | None:
        """Who has this name now."""
        self._refresh()
        return self._users.get(name)

    @property
    def payloads(self) -> Role:
        """Who may read what runs stored."""
        self._refresh()
        return self._payloads

    def proven(self, token: str) -> User | None:
        """Whose token it is, if that was found out before; costs nothing."""
        user = self.find(_name_in(token))
        known = self._proven.get(self._mark(token))
        return user if user is not None and known is not None and known == user.hash else None

    async def check(self, token: str) -> User | None:
        """Whose token it is. It takes as long for a name that nobody has."""
        if (known := self.proven(token)) is not None:
            return known
        user = self.find(_name_in(token))
        stored = user.hash if user is not None and user.hash else _NOBODY
        fits = await asyncio.to_thread(_fits, token, stored)
        if not fits or user is None or not user.hash:
            return None
        self._proven[self._mark(token)] = user.hash
        if len(self._proven) > _KEPT:
            self._proven.popitem(last=False)
        return user

    def _mark(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode(), "sha256")

    def _refresh(self) -> None:
        try:
            if _stamp(self._path) != self._seen:
                self._read()
        except (UsageError, OSError) as error:
            if self._users:
                warn("users.unreadable", file=str(self._path), error=str(error))
            self._users, self._seen = {}, None  # nobody, until it can be read again

    def _read(self) -> None:
        try:
            stamp = _stamp(self._path)
            mode = self._path.stat().st_mode
            found = tomllib.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UsageError(
                f"The users in {self._path} cannot be read: there is no such file. It is made with the first of them: "
                f"--users {self._path} --add-user NAME:ROLE, which prints their token."
            ) from error
        except (OSError, ValueError) as error:
            raise UsageError(f"The users in {self._path} cannot be read: {error}.") from error
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UsageError(f"{self._path} can be written by others, who could make themselves admins; chmod go-w it.")
        self._users, self._payloads = _checked(found, self._path)
        self._seen = stamp


def _checked(found: dict[str, Any], path: Path) -> tuple[dict[str, User], Role]:
    if unknown := found.keys() - {"users", "payloads"}:
        raise UsageError(f"{path}: {sorted(unknown)[0]!r} is not known; it has `payloads` and [[users]].")
    users: dict[str, User] = {}
    listed = found.get("users", [])
    for each in listed if isinstance(listed, list) else [None]:
        if not isinstance(each, dict) or each.keys() - {"name", "role", "hash"}:
            raise UsageError(f"{path}: each of [[users]] has name, role and hash; got {each!r}.")
        name, role, hashed = each.get("name"), each.get("role"), each.get("hash", "")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in users:
            raise UsageError(f"{path}: {name!r} is no name, or is there twice.")
        if role not in list(Role):
            raise UsageError(f"{path}: {name} has the role {role!r}; there are {', '.join(Role)}.")
        if not isinstance(hashed, str) or (hashed and _parts(hashed) is None):
            raise UsageError(f"{path}: the hash of {name} cannot be read; make one with --add-user.")
        users[name] = User(name, Role(role), hashed)
    payloads = found.get("payloads", "viewer")
    if payloads not in list(Role):
        raise UsageError(f"{path}: payloads is one of {', '.join(Role)}; got {payloads!r}.")
    return users, Role(payloads)


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


# tokens: NAME.SECRET


def add_user(path: Path, name: str, role: Role, *, cost: int = _COST[0]) -> str:
    """Write somebody into the file, which is made if it is missing; their token, which is nowhere else.

    `cost`: how hard it is to guess, a power of two.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name: letters, digits and _ @ + - are.")
    if path.exists() and Users(path).find(name) is not None:
        raise UsageError(f"{path} has a {name} already; remove that entry first.")
    token = f"{name}.{new_token()}"
    entry = f'\n[[users]]\nname = "{name}"\nrole = "{role}"\nhash = "{hashed(token, cost=cost)}"\n'
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "a") as file:
        file.write(entry)
    return token


def hashed(token: str, *, cost: int = _COST[0]) -> str:
    """What the file has of a token."""
    return _hashed(token, random_bytes(16), (cost, *_COST[1:]))


def _hashed(token: str, salt: bytes, cost: tuple[int, int, int]) -> str:
    n, r, p = cost
    found = hashlib.scrypt(token.encode(), salt=salt, n=n, r=r, p=p, maxmem=128 * n * r * 2)
    return "$".join(["scrypt", str(n), str(r), str(p), *(base64.b64encode(each).decode() for each in (salt, found))])


def _parts(stored: str) -> tuple[bytes, tuple[int, int, int]] | None:
    found = re.fullmatch(r"scrypt\$(\d{1,7})\$(\d{1,2})\$(\d)\$([A-Za-z0-9+/=]+)\$[A-Za-z0-9+/=]+", stored)
    if found is None:
        return None
    n, r, p = int(found[1]), int(found[2]), int(found[3])
    if n < 2 or n & (n - 1) or not r or not p:  # it is a power of two, or nobody could sign in
        return None
    return base64.b64decode(found[4]), (n, r, p)


def _fits(token: str, stored: str) -> bool:
    parts = _parts(stored)
    return parts is not None and hmac.compare_digest(_hashed(token, *parts), stored)


_NOBODY: Final = "$".join(["scrypt", *map(str, _COST), base64.b64encode(bytes(16)).decode(), "AAAA"])


def _name_in(token: str) -> str:
    return token.rpartition(".")[0]
