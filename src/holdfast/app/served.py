"""An app on a store that is behind a server: it looks as any other does, and has the server act."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO, cast
from urllib.parse import urlencode

from holdfast.app.app import Holdfast
from holdfast.app.commanded import Commanded
from holdfast.app.options import AppOptions
from holdfast.base.clock import in_seconds
from holdfast.control.upkeep.retention import PruneResult
from holdfast.durations import Duration
from holdfast.errors import AlreadySettled, UsageError
from holdfast.handle.decisions import Question
from holdfast.handle.run import Run
from holdfast.handle.served import ServedQuestion, ServedRun, act, name_at, place, plain
from holdfast.history.lookup import find
from holdfast.model import RunId, Status, ThreadId, token_parts
from holdfast.model.plans import Op
from holdfast.verbs.agent import Agent

_IN_MEMORY = 1 << 20
_LONG_S = 24 * 3600.0  # pruning takes its time


class Served(Holdfast):
    """For the command line: what commands do to a store, done by its server.

    Who acts is who the token belongs to. What is not here cannot be done through a server, and says so.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, AppOptions())
        self._commanded = ServedCommanded(self._store)

    async def _do(self, path: str, **body: Any) -> Any:
        return await act(self._store, "POST", path, body=body)

    # runs and questions

    def get(self, token: str, agent: Agent[..., Any] | None = None) -> Run[Any]:
        named, thread_id = token_parts(token, "app.get()")
        return self._handle(named, ThreadId(thread_id))._of(agent)

    async def find(self, given: str) -> Run[Any]:
        row = await find(self._store, given)
        return self._handle(row.id, row.thread_id)

    def _handle(self, run_id: RunId, thread_id: ThreadId) -> ServedRun[Any]:
        return ServedRun(self._store, run_id, thread_id, here=self._here)

    async def questions(self, *, only_open: bool = True, limit: int = 200) -> list[Question]:
        rows = await self._store.questions(only_open=only_open, limit=limit)
        return [ServedQuestion._of(self._store, row) for row in rows]

    async def question(self, given: str) -> Question:
        return ServedQuestion._of(self._store, (await super().question(given))._row)

    # what is declared

    async def emit(
        self,
        event: str,
        value: Any = None,
        *,
        dedup: str | None = None,
        transaction: Any = None,
        by: str | None = None,
        note: str = "",
    ) -> str:
        given = {} if dedup is None else {"dedup": dedup}
        return str((await self._do("/events", name=event, value=value, note=note, **given))["id"])

    async def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per_key: int | None = None,
        rate: tuple[int, Duration] | None = None,
        by: str | None = None,
        note: str = "",
    ) -> None:
        per = None if rate is None else {"starts": rate[0], "seconds": float(in_seconds(rate[1], "rate="))}
        limits = {"concurrency": concurrency, "per_key": per_key, "rate": per}
        await act(self._store, "PUT", place("queues", name), body={**limits, "note": note})

    async def pause_queue(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._do(place("queues", name, "pause"), note=note)

    async def resume_queue(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._do(place("queues", name, "resume"), note=note)

    async def pause_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._do(place("schedules", name, "pause"), note=note)

    async def resume_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._do(place("schedules", name, "resume"), note=note)

    async def fire_schedule(self, name: str, *, by: str | None = None, note: str = "") -> Run[Any]:
        made = await self._do(place("schedules", name, "run"), note=note)
        return self._handle(RunId(made["id"]), ThreadId(made["thread_id"]))

    async def backfill_schedule(
        self, name: str, start: datetime, end: datetime, *, by: str | None = None, note: str = ""
    ) -> list[Run[Any]]:
        given = {"from": start.isoformat(), "to": end.isoformat(), "note": note}
        told = await self._do(place("schedules", name, "backfill"), **given)
        return [self._handle(RunId(each), ThreadId("")) for each in told["runs"]]

    async def remove_schedule(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._remove("schedules", name, note)

    async def pause_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._do(place("triggers", name, "pause"), note=note)

    async def resume_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._do(place("triggers", name, "resume"), note=note)

    async def remove_trigger(self, name: str, *, by: str | None = None, note: str = "") -> None:
        await self._remove("triggers", name, note)

    async def _remove(self, kind: str, name: str, note: str) -> None:
        await act(self._store, "DELETE", place(kind, name) + (f"?{urlencode({'note': note})}" if note else ""))

    # what is kept

    async def prune(
        self,
        *,
        older_than: Duration,
        agent: str | None = None,
        status: Sequence[Status] = (),
        dry_run: bool = False,
        forget: bool = False,
        progress: Callable[[int], None] | None = None,
        by: str | None = None,
        note: str = "",
    ) -> PruneResult:
        wanted = {
            "older_than_s": float(in_seconds(older_than, "older_than=")),
            "agent": agent,
            "status": [each.value for each in status],
            "dry_run": dry_run,
            "forget": forget,
            "note": note,
        }
        return PruneResult(**await act(self._store, "POST", "/prune", body=wanted, timeout_s=_LONG_S))

    async def retain(self, agent: str, *, keep: Duration | None, by: str | None = None, note: str = "") -> None:
        if keep is None:
            await self._remove("retention", agent, note)
            return
        keep_s = None if keep == timedelta.max else float(in_seconds(keep, "keep="))
        await act(self._store, "PUT", place("retention", agent), body={"keep_s": keep_s, "note": note})


class ServedCommanded(Commanded):
    """Done by the server."""

    async def actor(self, by: str | None) -> str:
        return await name_at(self._store)

    async def settle(
        self, run_id: RunId, key: str, body: Mapping[str, Any], *, attempt: int, by: str | None, note: str
    ) -> None:
        if not note:
            raise UsageError("A server takes a verdict only with a note (--note): say how you know.")
        if attempt < 1:  # the server settles what was shown; here nothing was
            raise AlreadySettled(f"{key} of run {run_id} is not in doubt (any more); nothing was changed.")
        match body["verdict"]:
            case "landed":
                said = {"verdict": "happened", "value": plain(body["value"])}
            case "not_landed":
                said = {"verdict": "not_happened"}
            case _:
                said = {"verdict": "failed", "error": json.loads(body["error"])["message"]}
        order = {"attempt": attempt, "note": note, **said}
        await act(self._store, "POST", place("runs", run_id, "in-doubt", key), body=order)

    async def change_plan(self, run_id: RunId, ops: Sequence[Op], *, by: str | None, note: str) -> int:
        order = {"ops": list(ops), "note": note}
        return int((await act(self._store, "POST", place("runs", run_id, "plan"), body=order))["number"])

    async def give(
        self, run_id: RunId, name: str, stream: BinaryIO, *, media_type: str | None, by: str | None, note: str
    ) -> tuple[int, bool]:
        said = {"note": note} | ({} if media_type is None else {"media_type": media_type})
        path = f"{place('runs', run_id, 'artifacts', name)}?{urlencode(said)}"
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as kept:
            file = stream
            if not stream.seekable():  # a pipe; what is sent is read twice
                await asyncio.to_thread(shutil.copyfileobj, stream, kept)
                file = cast("BinaryIO", kept)
            told = await act(self._store, "PUT", path, body=file)
        return told["version"], told["is_new"]
