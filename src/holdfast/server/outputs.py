"""What the API shows of what runs keep and put out: states, files, streams, plans, receipts, threads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.app import Holdfast
from holdfast.errors import DamagedFile, UsageError
from holdfast.handle import forks
from holdfast.handle.forks import Wanted
from holdfast.history.artifacts import WORKSPACE, Output, named, outputs_of
from holdfast.history.checkpoints import StateChange, checkpoints_page, difference_of, state_of
from holdfast.history.pages import receipts_of_run
from holdfast.history.plans import plan_of, todo_text
from holdfast.history.receipts import gap_texts
from holdfast.history.streams import Following, events, streams_of
from holdfast.history.values import plain_text
from holdfast.journal.files import read_chunks
from holdfast.journal.files import state_of as file_state
from holdfast.journal.integrity import is_sound
from holdfast.model import Message, RunId, RunRow, StreamEvent, ThreadId, ThreadRow
from holdfast.model.files import FileState
from holdfast.server.objects import SHOWN, cut, iso, plain, stamp
from holdfast.server.problems import Problem
from holdfast.store.contract import Store

_SHOWN: Final = 4_000  #: characters of one of many values
_MANY: Final = 1_000


class Outputs:
    """Looks at what is kept in the store of an app."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @property
    def _store(self) -> Store:
        return self._app._store

    # states

    async def checkpoints(self, row: RunRow, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        found = await checkpoints_page(self._store, row.id, after=after, limit=limit + 1)
        items = [
            {"turn": each.turn, "seq": each.seq, "at": iso(each.at), "size": each.size, "unread": each.unread}
            for each in found[:limit]
        ]
        return items, found[limit - 1].seq if len(found) > limit else None

    async def state(self, row: RunRow, turn: int | None) -> dict[str, Any]:
        """With which state a turn began; without a turn the last one."""
        wanted = row.turn if turn is None else turn
        _check_turn(row, wanted)
        text = json.dumps(await state_of(self._store, row.id, wanted), ensure_ascii=False)
        (head, _), *_ = await self._store.checkpoints(row.id, turn=wanted, limit=1)
        return {"turn": wanted, "at": stamp(head.at), "state": cut(text, SHOWN, row.id, head.seq, "args")}

    async def difference(self, row: RunRow, before: int, after: int) -> dict[str, Any]:
        """What differs between the states that two turns began with; the first ones of very many."""
        for turn in (before, after):
            _check_turn(row, turn)
        found = await difference_of(self._store, row.id, turns=(before, after))
        return {
            "a": before,
            "b": after,
            "items": [_change(each) for each in found[:_MANY]],
            "truncated": len(found) > _MANY,
        }

    # files

    async def artifacts(
        self, row: RunRow, *, check: bool, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """What the run has put out, from a place in the list on."""
        found = await outputs_of(self._store, row.id, check=check)
        items = [_artifact(each) for each in found[after : after + limit]]
        return items, after + limit if len(found) > after + limit else None

    async def artifact(self, row: RunRow, name: str, *, version: int | None) -> Output:
        """One that has bytes, which are sound."""
        found = await outputs_of(self._store, row.id, check=False)
        with_bytes = [each for each in found if each.identity[1] is not None and each.kind != WORKSPACE]
        try:
            chosen = named(with_bytes, name, run_id=row.id, version=version)
        except UsageError:
            if any(each.name == name and version in (None, each.version) for each in found):
                raise Problem("no_bytes", f"{name!r} is no file: the list says what it is.") from None
            raise Problem("no_such_artifact", f"Run {row.id!r} has put out no such {name!r}.") from None
        if chosen.file is not None:
            chosen_state = await file_state(self._store, row.id, chosen.file, known={})
            if chosen_state is not FileState.stored:
                raise Problem("damaged_file", f"The bytes of {name!r} are {chosen_state.value}.")
        return chosen

    async def chunks(self, row: RunRow, output: Output) -> AsyncIterator[bytes]:
        """Its bytes, a few at a time."""
        if output.file is None:
            yield output.data or b""
            return
        try:
            async for each in read_chunks(self._store, row.id, output.file):
                yield each
        except DamagedFile as error:  # pruned, or damaged since it was looked at: the client gets too few bytes
            raise ConnectionError(str(error)) from error

    # streams

    def streams(self, row: RunRow) -> list[dict[str, Any]]:
        return [{"name": name, "last": last} for name, last in streams_of(row).items()]

    async def events(self, row: RunRow, name: str, *, after: int | None, limit: int) -> dict[str, Any]:
        """The events of a stream behind a number; without one, from the last reset on."""
        if name not in streams_of(row):
            raise Problem("no_such_stream", f"Run {row.id!r} has no stream {name!r}.")
        items: list[dict[str, Any]] = []
        is_more = False
        async for event in events(self._store, row.id, name, offset=after, live=False):
            if len(items) == limit:
                is_more = True
                break
            items.append(event_object(event))
        last = items[-1]["number"] if items else (after or 0)
        return {"items": items, "last": last, "is_more": is_more, "is_over": row.status.is_final and not is_more}

    def following(self, row: RunRow, name: str, *, after: int | None) -> Following:
        """A stream as it grows, also one that a run has not begun yet."""
        if name not in streams_of(row) and row.status.is_final:
            raise Problem("no_such_stream", f"Run {row.id!r} has no stream {name!r}.")
        return Following(self._store, row.id, name, offset=after)

    # plans, receipts, forks

    async def plan(self, row: RunRow) -> dict[str, Any]:
        found = await plan_of(self._store, row.id)
        if found is None:
            raise Problem("no_such_plan", f"Run {row.id!r} has no plan.")
        return {**found.as_dict(), "todo": todo_text(row.id, found.items)}

    async def receipts(self, row: RunRow) -> list[dict[str, Any]]:
        found = await receipts_of_run(self._store, row.id)
        return [{**plain(each.as_dict()), "gap_report": gap_texts(each)} for each in found]

    async def fork_plan(self, row: RunRow, wanted: Wanted) -> dict[str, Any]:
        told: dict[str, Any] = plain((await forks.plan(self._store, RunId(row.id), wanted)).as_dict())
        return told

    # threads

    async def threads(self, *, prefix: str, after: str, limit: int) -> tuple[list[dict[str, Any]], str | None]:
        """In the order of ids."""
        found = await self._store.threads(id_prefix=prefix, after=after, limit=limit + 1)
        items = [_thread(each) for each in found[:limit]]
        return items, found[limit - 1].id if len(found) > limit else None

    async def messages(
        self, thread_id: str, *, after: int, limit: int, has_values: bool
    ) -> tuple[list[dict[str, Any]], int | None]:
        """What was said behind a number, in order; what is damaged is said so."""
        if await self._store.thread(ThreadId(thread_id)) is None:
            raise Problem("no_such_thread", f"Nothing was said in a thread {thread_id!r}.")
        found = await self._store.messages(ThreadId(thread_id), after=after, limit=limit + 1)
        items = [_message(each, has_values=has_values) for each in found[:limit]]
        return items, found[limit - 1].number if len(found) > limit else None


def _check_turn(row: RunRow, turn: int) -> None:
    if not 1 <= turn <= row.turn:
        has = f"its turns are 1 to {row.turn}" if row.turn else "it has no turns"
        raise Problem("no_such_turn", f"Run {row.id!r} has no turn {turn}; {has}.", turns=row.turn)


def _change(change: StateChange) -> dict[str, Any]:
    before, after = (
        None if is_missing else json.dumps(value, ensure_ascii=False)
        for value, is_missing in ((change.before, change.kind == "added"), (change.after, change.kind == "removed"))
    )
    return {
        "path": change.path,
        "kind": change.kind,
        "before_json": None if before is None else before[:_SHOWN],
        "after_json": None if after is None else after[:_SHOWN],
        "truncated": max(len(before or ""), len(after or "")) > _SHOWN,
    }


def _artifact(output: Output) -> dict[str, Any]:
    return {**output.as_dict(), "at": None if output.at is None else iso(output.at)}


def event_object(event: StreamEvent) -> dict[str, Any]:
    return {
        "number": event.number,
        "kind": event.kind.value,
        "text": event.text,
        "key": event.key,
        "attempt": event.attempt,
        "at": iso(event.at),
        "reason": None if event.reason is None else event.reason.value,
    }


def _thread(row: ThreadRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "last": row.last,
        "summary": row.summary or None,
        "covers": row.covers or None,
        "created_at": stamp(row.created_at),
        "updated_at": stamp(row.updated_at),
    }


def _message(message: Message, *, has_values: bool) -> dict[str, Any]:
    sound = is_sound(message)
    text = plain_text(message.body) if has_values and sound else None
    return {
        "number": message.number,
        "at": stamp(message.at),
        "author": message.author,
        "covers": message.covers,
        "json": None if text is None else text[:SHOWN],
        "truncated": len(text or "") > SHOWN,
        "is_sound": sound,
    }
