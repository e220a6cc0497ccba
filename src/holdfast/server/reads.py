"""What the API shows of a store. All that is read goes through here."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from holdfast.app import Holdfast
from holdfast.base.clock import now_us
from holdfast.errors import CorruptJournal, HoldfastError, RunNotFound, UsageError
from holdfast.handle.decisions import InDoubt, Question
from holdfast.history.columns import CallTable
from holdfast.history.facts import note_of
from holdfast.history.forks import origin_of
from holdfast.history.info import info_of, is_sound
from holdfast.history.pages import Landmarks, landmarks, receipts, timeline_pages
from holdfast.history.receipts import Receipt
from holdfast.history.story import story_of
from holdfast.history.timeline import TimelineItem
from holdfast.history.values import plain_text
from holdfast.journal.blobs import stored_text
from holdfast.journal.pages import record_pages
from holdfast.journal.tombstones import refuse_empty
from holdfast.model import (
    FINAL,
    ActFilter,
    Kind,
    QuestionRow,
    Record,
    RunFilter,
    RunId,
    RunRow,
    Status,
    WorkerId,
    reasons,
)
from holdfast.server.objects import (
    SHOWN,
    as_us,
    cut,
    glimpse,
    iso,
    plain,
    question_object,
    run_object,
    stamp,
)
from holdfast.server.outputs import Outputs
from holdfast.server.pages import Position
from holdfast.server.problems import Problem, problem_of
from holdfast.server.savings import Savings
from holdfast.server.surveys import Surveys
from holdfast.server.tables import Tables
from holdfast.server.which import Which
from holdfast.store.contract import Store
from holdfast.store.looks import Look
from holdfast.version import VERSION

_STUCK: Final = frozenset({Status.in_doubt, Status.blocked, Status.quarantined})


class Reads:
    """Looks at the store of an app."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self.surveys = Surveys(app)
        self.outputs = Outputs(app)
        self._tables = Tables()
        self._savings = Savings(app)

    @property
    def _store(self) -> Store:
        return self._app._store

    # runs

    async def rows(self, which: Which, *, limit: int, after: Position | None = None) -> list[RunRow]:
        """Newest first."""
        dead: frozenset[WorkerId] = frozenset()
        if which.cut_off:
            dead = frozenset(await self._store.dead_workers())
            if not dead:
                return []
        return await self._store.runs(which.filter(dead, limit=limit, after=after))

    async def page(
        self, which: Which, *, limit: int, after: Position | None
    ) -> tuple[list[dict[str, Any]], Position | None]:
        """A page of run objects, and where the next one begins."""
        rows = await self.rows(which, limit=limit + 1, after=after)
        dead = await self._store.dead_workers()
        items = [run_object(row, is_lost=row.owner in dead) for row in rows[:limit]]
        last = rows[limit - 1] if len(rows) > limit else None
        return items, None if last is None else Position(last.created_at, last.id)

    async def row(self, run_id: str) -> RunRow:
        """The row of a run that is here; Problem if there is none, or if nothing else is left of it."""
        row = await self._found(run_id)
        try:
            refuse_empty(row)
        except HoldfastError as gone:
            problem = problem_of(gone)
            problem.more["run"] = run_object(row, is_lost=False)
            raise problem from None
        return row

    async def _found(self, run_id: str) -> RunRow:
        """A row that cannot be read is shown as quarantined."""
        try:
            row: RunRow | None = await self._store.run(RunId(run_id))
        except CorruptJournal:
            fitting: list[RunRow] = await self._store.runs(RunFilter(id_prefix=run_id, limit=10))
            row = next((each for each in fitting if each.id == run_id), None)
        if row is None:
            raise Problem("no_such_run", f"There is no run {run_id!r}.")
        return row

    async def object(self, row: RunRow) -> dict[str, Any]:
        """The run object of a row."""
        return run_object(row, is_lost=await self._is_lost(row))

    async def _is_lost(self, row: RunRow) -> bool:
        return row.owner is not None and row.owner in await self._store.dead_workers()

    async def load(self, run_id: str) -> tuple[RunRow, list[Record]]:
        """Row and records of one moment. Damaged ones are shown as far as they can be read."""
        await self.row(run_id)
        try:
            loaded = await self._store.load(RunId(run_id))
        except CorruptJournal:
            return await self.row(run_id), []
        if loaded is None:
            raise Problem("no_such_run", f"There is no run {run_id!r}.")
        row, records = loaded
        return row, list(records)

    async def detail(self, run_id: str) -> tuple[RunRow, dict[str, Any]]:
        """All of a run but its calls."""
        row = await self.row(run_id)
        known, told = Landmarks(None, None, None, True), list[Receipt]()
        with suppress(CorruptJournal):
            known = await landmarks(self._store, row)
            told = await receipts(self._store, row, known=known)
        created, ended = known.created, known.finished
        is_over = row.status in FINAL
        claim = {} if known.claim is None else note_of(known.claim)
        origin = note_of(created) if created is not None else {}
        children = await self._store.runs(RunFilter(parent_id=RunId(run_id), limit=200))
        questions: list[Question] = []
        with suppress(CorruptJournal):
            questions = [Question._of(self._store, each) for each in await self._store.questions(run_id=row.id)]
        return row, {
            **run_object(row, is_lost=await self._is_lost(row)),
            "reason": None if row.reason is None else plain(reasons.plain(row.reason)),
            "input": await self.value(run_id, created, "args"),
            "result": await self.value(run_id, ended, "payload") if ended is not None and is_over else None,
            "code": {
                "digest": claim.get("code") or origin.get("code") or None,
                "version": origin.get("version"),
                "source": claim.get("source"),
                "holdfast": claim.get("holdfast") or origin.get("holdfast"),
            },
            "forked_from": None if created is None else origin_of(created),
            "children": [{"id": each.id, "agent": each.agent, "status": each.status.value} for each in children],
            "questions": [question_object(each) for each in questions],
            "receipts": [plain(each.as_dict()) for each in told],
            "verification": {"is_sound": is_sound(row), "checked": "row"},
        }

    async def value(self, run_id: str, record: Record | None, part: str) -> dict[str, Any] | None:
        """A stored value as text, cut where it is too long, with where all of it is."""
        stored = None if record is None else (record.args if part == "args" else record.payload)
        if record is None or stored is None:
            return None
        return cut(await self.whole(run_id, stored), SHOWN, run_id, record.seq, part)

    async def whole(self, run_id: str, stored: str) -> str:
        """The text of a stored value; what is damaged is said so."""
        try:
            return plain_text(await stored_text(self._store, RunId(run_id), stored))
        except CorruptJournal:
            return json.dumps("(damaged)")

    async def columns(self, run_id: str, after: int) -> tuple[RunRow, dict[str, Any]]:
        """The calls of a run that changed after a record."""
        row = await self.row(run_id)
        dead = frozenset(await self._store.dead_workers()) if row.owner is not None else frozenset()
        try:
            found = await self._tables.columns(self._store, row.id, after=after, dead=dead)
        except CorruptJournal:
            return row, CallTable().columns(row, is_lost=False, after=0)
        if found is None:
            raise Problem("no_such_run", f"There is no run {run_id!r}.")
        return found

    async def call(self, run_id: str, key: str) -> tuple[RunRow, dict[str, Any]]:
        """One call with all that is known of it."""
        row = await self.row(run_id)
        about: list[Record] = []
        with suppress(CorruptJournal):
            about = [r async for page in record_pages(self._store, row) for r in page if r.key == key]
        table = CallTable()
        table.add(about)
        table.columns(row, is_lost=await self._is_lost(row), after=0)
        found = table.calls.get(key)
        if found is None:
            raise Problem("no_such_call", f"Run {run_id!r} has no call {key!r}.")
        began = next((record for record in about if record.args is not None), None)
        ended = next(
            (record for record in reversed(about) if record.kind in (Kind.done, Kind.failed, Kind.unstored)), None
        )
        return row, {
            "key": key,
            "name": found.name,
            "kind": found.kind,
            "status": found.status,
            "began_at": stamp(found.began),
            "ended_at": None if found.ended is None else stamp(found.ended),
            "took_s": found.took / 1e6,
            "usage": {"tokens": found.tokens, "cost": found.cost},
            "args": await self.value(run_id, began, "args"),
            "result": await self.value(run_id, ended, "payload"),
            "settlements": [
                {"at": stamp(each.at), **plain(note_of(each))} for each in about if each.kind == Kind.settled
            ],
            "records": [await self.record(run_id, each) for each in about],
            **{name: plain(value) for name, value in (found.extras or {}).items()},
        }

    async def records(self, run_id: str, *, after: int, limit: int) -> tuple[RunRow, list[dict[str, Any]], int | None]:
        """A page of the journal, oldest first, and where the next one begins."""
        row = await self.row(run_id)
        found: Sequence[Record] = await self._store.records(RunId(run_id), after=after, limit=limit + 1)
        some = found[:limit]
        return row, [await self.record(run_id, each) for each in some], some[-1].seq if len(found) > limit else None

    async def record(self, run_id: str, record: Record) -> dict[str, Any]:
        """One line of the journal, its values cut."""
        return {
            "seq": record.seq,
            "epoch": record.epoch,
            "key": record.key,
            "kind": record.kind,
            "name": record.name,
            "attempt": record.attempt,
            "tick": record.tick,
            "at": stamp(record.at),
            "took_s": record.took / 1e6,
            "args": glimpse(record.args, run_id, record.seq, "args"),
            "payload": glimpse(record.payload, run_id, record.seq, "payload"),
            "hash": record.hash.hex(),
        }

    async def payload(self, run_id: str, seq: int, part: str) -> str:
        """All of a stored value, as JSON text."""
        await self.row(run_id)
        found = await self._store.surveys.record(RunId(run_id), seq)
        if found is None:
            raise Problem("no_such_record", f"Run {run_id!r} has no record {seq}.")
        stored = found.args if part == "args" else found.payload
        if stored is None:
            raise Problem("no_such_record", f"Record {seq} of run {run_id!r} has no {part}.")
        text: str = await stored_text(self._store, RunId(run_id), stored)
        return text

    async def story(self, run_id: str) -> tuple[RunRow, list[str]]:
        """What happened, in sentences."""
        row = await self.row(run_id)
        asked: list[QuestionRow] = []
        with suppress(CorruptJournal):
            asked = await self._store.questions(run_id=row.id, only_open=False)
        timeline, saved = list[TimelineItem](), list[Receipt]()
        with suppress(CorruptJournal):
            timeline = [item async for page in timeline_pages(self._store, row, asked=asked) for item in page]
            saved = await receipts(self._store, row)
        told = story_of(info_of(row, is_lost=await self._is_lost(row)), timeline, saved)
        return row, [chapter.text for chapter in told]

    async def verify(self, run_id: str) -> dict[str, Any]:
        """Check every stored byte of a run."""
        await self.row(run_id)
        found = await self._app.get(run_id).verify_journal()
        return {**found.as_dict(), "at": stamp(now_us())}

    async def look(self, wanted: Look, given: Mapping[str, Any]) -> str:
        """Rows as they are stored, as text."""
        return await wanted.result(self._store, given)

    # what needs somebody

    async def questions(
        self, *, only_open: bool, run_id: str | None, limit: int = 200, after: Position | None = None
    ) -> tuple[list[dict[str, Any]], Position | None]:
        """A page of what is asked: open questions oldest first, all of them newest first; and where the next begins."""
        place = None if after is None else (after.at, after.id)
        if run_id is not None:
            await self.row(run_id)
            rows = await self._store.questions(run_id=RunId(run_id), only_open=only_open, limit=10_000)
            rows.sort(key=lambda row: (row.asked_at, row.id), reverse=not only_open)
            places = [(row.asked_at, row.id) for row in rows]
            begin = 0 if place is None else bisect(places, place) if only_open else _behind(places, place)
            rows = rows[begin : begin + limit + 1]
        else:
            rows = await self._store.surveys.questions(only_open=only_open, limit=limit + 1, after=place)
        last = rows[limit - 1] if len(rows) > limit else None
        shown = [question_object(Question._of(self._store, row)) for row in rows[:limit]]
        return shown, None if last is None else Position(last.asked_at, last.id)

    async def question(self, question_id: str) -> Question:
        """The question with exactly this id."""
        try:
            found = await self._app.question(question_id) if question_id else None
        except (RunNotFound, UsageError):  # none begins so, or several do
            found = None
        if found is None or found.id != question_id:
            raise Problem("no_such_question", f"There is no question {question_id!r}.")
        return found

    async def doubts(self, run_id: str | None) -> list[InDoubt]:
        """The effects that a person must settle."""
        if run_id is None:
            return await self._app.in_doubt()
        await self.row(run_id)
        return await self._app.get(run_id).in_doubt()

    async def acts(
        self, *, run: str | None, by: str | None, since: datetime | None, limit: int, after: Position | None
    ) -> tuple[list[dict[str, Any]], Position | None]:
        """A page of what people did, newest first; and where the next one begins."""
        before = None
        if after is not None:
            if not after.id.isdecimal() or len(after.id) > 18:
                raise Problem("cursor_does_not_fit", "It is no cursor of this list.")
            before = (after.at, int(after.id))
        which = ActFilter(
            None if run is None else RunId(run), by, None if since is None else as_us(since), before, limit + 1
        )
        found = await self._store.surveys.acts(which)
        items = [
            {
                "number": number,
                "at": stamp(act.at),
                "by": act.by,
                "via": act.via.value,
                "what": act.what,
                "target": act.target,
                "run_id": act.run_id,
                "note": act.note,
            }
            for number, act in found[:limit]
        ]
        last = found[limit - 1] if len(found) > limit else None
        return items, None if last is None else Position(last[1].at, str(last[0]))

    async def overview(self) -> dict[str, Any]:
        """What the first screen shows, in one read."""
        stuck = await self.rows(Which(status=tuple(_STUCK)), limit=100)
        lost = await self.rows(Which(cut_off=True), limit=100)
        dead = await self._store.dead_workers()
        needs = [{"kind": row.status.value, "run": run_object(row, is_lost=row.owner in dead)} for row in stuck]
        needs += [{"kind": "cut_off", "run": run_object(row, is_lost=True)} for row in lost if row.status not in FINAL]
        needs += [
            {"kind": "question", "question": each} for each in (await self.questions(only_open=True, run_id=None))[0]
        ]
        schedules = await self.schedules()
        fires = sorted((each["next_fires"][0], each["name"]) for each in schedules if each["next_fires"])
        return {
            "needs": needs[:100],
            "counts": await self.surveys.counts(Which()),
            "workers": await self.workers(),
            "next_fires": [{"at": at, "schedule": name} for at, name in fires[:10]],
            "resumed": await self._savings.last_day(),
        }

    # the rest

    async def schedules(self) -> list[dict[str, Any]]:
        return [plain(asdict(each)) for each in await self._app.schedules()]

    async def triggers(self) -> list[dict[str, Any]]:
        found = []
        for each in await self._app.triggers():
            facts = plain(asdict(each))
            facts["recent"] = facts["recent"][-5:]
            found.append(facts)
        return found

    async def trigger_log(self, name: str) -> dict[str, Any]:
        """The last things that happened to a trigger, and what it refused."""
        found = next((each for each in await self._app.triggers() if each.name == name), None)
        if found is None:
            raise Problem("no_such_trigger", f"There is no trigger {name!r}.")
        refused = await self._app.refused_starts(name, limit=100)
        return {
            "recent": [plain(asdict(note)) for note in found.recent],
            "refused": [
                {"at": iso(each.at), "run": each.run, "what": each.what, "why": each.why, "bytes": len(each.data)}
                for each in refused
            ],
        }

    async def queues(self) -> list[dict[str, Any]]:
        return [plain(asdict(each)) for each in await self._app.queues()]

    async def workers(self) -> list[dict[str, Any]]:
        return [plain(asdict(each)) for each in await self._app.workers()]

    async def store(self) -> dict[str, Any]:
        """What the store is, without where it is: a url may have a password in it, a path tells of the host."""
        return {
            "kind": "postgresql" if self._app.url.startswith("postgres") else "sqlite",
            "durability": self._store.durability,
            "trouble": self._store.trouble,
            "schema": max((each.number for each in await self._store.schema() if each.applied_at), default=0),
            "holdfast": VERSION,
        }


def _behind(places: Sequence[tuple[int, str]], place: tuple[int, str]) -> int:
    return next((n for n, each in enumerate(places) if each < place), len(places))
