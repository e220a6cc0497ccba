"""An app with its API, asked without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2 as httpx
from fastapi import FastAPI

import holdfast as hf
from holdfast.model import RunId
from holdfast.server import Access, create_app
from holdfast.server.security.hosts import Hosts
from holdfast.server.security.people import Role
from holdfast.server.security.proxies import Proxies
from holdfast.server.security.users import Users, add_user
from tests.eventually import eventually
from tests.server.agents import ALL

T = TypeVar("T")

BASE = "http://localhost:7788"
TOKEN = "0123456789abcdef0123456789abcdef-test"


class Scene:
    """A store below a folder, an app that executes agents, and its API.

    `people`: names and roles; each gets a token.
    """

    def __init__(
        self,
        folder: Path,
        *,
        people: dict[str, Role] | None = None,
        payloads: str = "viewer",
        executes: bool = True,
        is_read_only: bool = False,
        proxies: Proxies | None = None,
        name: str = "store.db",
        url: str = "",
    ) -> None:
        self.url = url or str(folder / name)
        self.tokens: dict[str, str] = {}
        users = None
        if people is not None:
            file = folder / "users.toml"
            file.write_text(f'payloads = "{payloads}"\n')
            file.chmod(0o600)
            self.tokens = {each: add_user(file, each, role, cost=16) for each, role in people.items()}
            users = Users(file)
        self.access = Access(
            token=TOKEN,
            hosts=Hosts.of([], port=7788),
            users=users,
            proxies=proxies or Proxies(),
            is_read_only=is_read_only,
            port=7788,
        )
        self.app = hf.connect(self.url, agents=ALL if executes else ())
        self.api: FastAPI = create_app(self.app, access=self.access)

    async def __aenter__(self) -> Self:
        await self.app.__aenter__()
        self.http = self.client()
        self._more = [self.http]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in self._more:
            await each.aclose()
        await self.app.__aexit__(kind, error, traceback)

    def client(self, *, token: str | None = TOKEN, **headers: str) -> httpx.AsyncClient:
        """Somebody who asks; `peer` is from where."""
        peer = headers.pop("peer", "127.0.0.1")
        given = {"authorization": f"Bearer {token}"} if token is not None else {}
        transport = httpx.ASGITransport(app=self.api, client=(peer, 4711))
        return httpx.AsyncClient(transport=transport, base_url=BASE, headers=given | headers)

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        answer = await self.http.get(f"/api/v1{path}", **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def post(self, path: str, body: Any = None, status: int = 200, *, key: str = "") -> Any:
        headers = {"idempotency-key": key} if key else {}
        answer = await self.http.post(f"/api/v1{path}", json=body or {}, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def start(self, agent: str, run_id: str, status: str, **given: Any) -> str:
        """A run, once it has a status."""
        await self.post("/runs", {"agent": agent, "id": run_id, "input": given}, 201)
        await self.until(run_id, status)
        return run_id

    async def until(self, run_id: str, status: str) -> None:
        async def is_so() -> bool:
            return bool((await self.get(f"/runs/{run_id}"))["status"] == status)

        await eventually(is_so)

    async def notes(self, run_id: str) -> list[tuple[str, str, dict[str, Any]]]:
        """What people did, as the journal has it."""
        records = await self.app._store.records(RunId(run_id))
        return [
            (each.kind, each.name, json.loads(each.payload or "{}"))
            for each in records
            if each.kind in ("noted", "reopened")
        ]


def played(
    folder: Path, play: Callable[[Scene], Coroutine[Any, Any, T]], *, options: dict[str, Any] | None = None
) -> T:
    """Have something asked of a scene."""

    async def go() -> T:
        async with Scene(folder, **options or {}) as scene:
            return await play(scene)

    return asyncio.run(go())
