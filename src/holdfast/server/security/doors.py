"""Who makes a request: a token in it, a session, or a name from a trusted proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from starlette.requests import cookie_parser

from holdfast.model import Via
from holdfast.server.problems import Problem
from holdfast.server.security.access import Access
from holdfast.server.security.failures import Failures
from holdfast.server.security.people import Person, Role
from holdfast.server.security.sessions import LENGTH_S, Sessions
from holdfast.server.security.tokens import is_same_token
from holdfast.server.security.users import User

#: In a session that the token of the store began: no user has this name.
_OWNER: Final = ""


class Doors:
    """Lets people in. `owner` is the name of whoever has the token of the store."""

    def __init__(self, access: Access, *, owner: str) -> None:
        self._access = access
        self._owner = owner
        self._sessions = Sessions()
        self._failures = Failures()

    async def person(self, headers: Mapping[str, str], peer: str) -> Person:
        """Who it is; Problem `sign_in` if nobody knows, `rate` if somebody has tried too often."""
        if (given := headers.get("authorization")) is not None:
            scheme, _, token = given.partition(" ")
            if scheme.lower() != "bearer":
                raise _unknown("Only Authorization: Bearer is taken.")
            return (await self._bearer(token.strip(), headers, peer))[0]
        if (session := self._session_in(headers)) is not None:
            name = self._sessions.name_of(session)
            found = None if name is None else self._of_name(name)
            if found is None:
                raise _unknown("The session has ended.")
            return Person(found[0], found[1], Via.web, is_ambient=True)
        if (name := self._access.proxies.name_of(headers, peer)) is not None:
            user = self._access.users.find(name) if self._access.users is not None else None
            return Person(name, user.role if user is not None else Role.viewer, Via.web, is_ambient=True)
        raise _unknown("")

    async def begin_session(self, token: str, headers: Mapping[str, str], peer: str) -> tuple[Person, str]:
        """Sign in with a token; the cookie that does it from now on."""
        person, name = await self._bearer(token, headers, peer)
        return person, self._cookie(self._sessions.begin(name), LENGTH_S)

    @contextmanager
    def counted(self, headers: Mapping[str, str], peer: str) -> Iterator[None]:
        """Somebody shows a key or a signature in the place of a token: who fails too often waits.

        What is right is not kept out by others who fail from the same address: neither can be guessed.
        """
        try:
            yield
        except Problem:
            of = self._access.proxies.peer_of(headers, peer)
            self._hold_off(of)
            self._failures.note(of)
            raise

    def end_session(self, headers: Mapping[str, str]) -> str:
        """Sign out; the cookie that takes the former one away."""
        if (session := self._session_in(headers)) is not None:
            self._sessions.end(session)
        return self._cookie("", 0)

    async def _bearer(self, token: str, headers: Mapping[str, str], peer: str) -> tuple[Person, str]:
        access = self._access
        # The token of the store cannot be guessed. Who has it is not kept out by others who fail from the same address.
        if access.token is not None and is_same_token(token, access.token):
            return Person(self._owner, Role.admin, Via.api, is_ambient=False), _OWNER
        user: User | None = access.users.proven(token) if access.users is not None else None
        if user is None:
            counted = access.proxies.peer_of(headers, peer)
            self._hold_off(counted)  # before the look, which takes its time
            user = await access.users.check(token) if access.users is not None else None
            if user is None:
                self._failures.note(counted)
                raise _unknown("The token is not known.")
        return Person(user.name, user.role, Via.api, is_ambient=False), user.name

    def _hold_off(self, peer: str) -> None:
        if wait_s := self._failures.wait_s(peer):
            raise Problem("rate", headers={"retry-after": str(wait_s)}) from None

    def _of_name(self, name: str) -> tuple[str, Role] | None:
        if name == _OWNER:
            return (self._owner, Role.admin) if self._access.token is not None else None
        user = self._access.users.find(name) if self._access.users is not None else None
        return None if user is None else (user.name, user.role)

    # the cookie

    @property
    def _cookie_name(self) -> str:
        if self._access.is_https:
            return "__Host-hf"
        return "hf" if self._access.port is None else f"hf-{self._access.port}"

    def _session_in(self, headers: Mapping[str, str]) -> str | None:
        return cookie_parser(headers.get("cookie", "")).get(self._cookie_name)

    def _cookie(self, value: str, age_s: int) -> str:
        secure = "; Secure" if self._access.is_https else ""
        return f"{self._cookie_name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _unknown(detail: str) -> Problem:
    return Problem("sign_in", detail, headers={"www-authenticate": "Bearer"})
