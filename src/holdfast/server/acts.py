"""What people do through the API. All that is changed goes through here, in the way that commands change it.

A request may come twice: its client did not hear the answer. With an `Idempotency-Key` the second one changes nothing.
There is no table of keys: a key becomes the id of the run that it starts, or the mark of the mail or the note that
stays in the journal. Keys of different people are different keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from holdfast.app import Holdfast
from holdfast.automation.schedules.schedules import ScheduledStart
from holdfast.automation.schedules.timetable import KIND as SCHEDULE
from holdfast.automation.schedules.timetable import from_definition
from holdfast.base.clock import due_us, monotonic_us, now_us
from holdfast.base.data import data
from holdfast.codec import Input, coder_for, coder_of, encode_error
from holdfast.codec.schema import problems_outside
from holdfast.control import doubts, lifecycle, signals
from holdfast.control.acting import act_on, actor
from holdfast.control.plans import change_plan
from holdfast.control.questions import decide
from holdfast.errors import (
    AlreadyDecided,
    ConflictingSend,
    ConflictingStart,
    CorruptJournal,
    QuestionChanged,
    StepError,
    UsageError,
)
from holdfast.history.replies import Replies
from holdfast.journal.integrity import check_records
from holdfast.journal.pages import record_pages
from holdfast.journal.tombstones import refuse_elsewhere, refuse_empty
from holdfast.model import Actor, Kind, Mail, NoteKind, QuestionState, RunId, RunRow, Status
from holdfast.model.budgets import Budget
from holdfast.server.branching import Forks
from holdfast.server.keeping import Keeping
from holdfast.server.objects import question_object
from holdfast.server.problems import Problem, misfit
from holdfast.server.reads import Reads
from holdfast.server.security.people import Person
from holdfast.server.uploading import Uploads
from holdfast.store.contract import Store
from holdfast.worker.endings import superseded
from holdfast.worker.refusals import refuse_undone
from holdfast.worker.starting import NewRun, QueuePlace

Outcome = tuple[Status, str]  # how the run stands, and what was done
_SOON_S: Final = 2.0
_LOOK_S: Final = 0.02


def owner() -> str:
    """Who this process belongs to: the name of whoever has the token of the store."""
    return actor(None)


@data
class Act:
    """Who does something, why, and under which key."""

    person: Person
    note: str = ""
    key: str | None = None

    @property
    def by(self) -> Actor:
        return Actor.of(self.person.name, self.person.via)

    @property
    def own_id(self) -> str:
        """What tells this act from all others; empty without a key."""
        if self.key is None:
            return ""
        return f"http:{hashlib.sha256(json.dumps([self.by, self.key]).encode()).hexdigest()[:32]}"


@data
class Start:
    """A run that is wanted."""

    agent: str
    input: Mapping[str, Any]
    id: str | None
    thread_id: str | None
    queue: str | None
    queue_key: str
    priority: int
    delay_s: float | None
    tags: Mapping[str, str]


class Acts:
    """Changes the store of an app."""

    def __init__(self, app: Holdfast, reads: Reads) -> None:
        self._app = app
        self._reads = reads
        self.forks = Forks(app, reads)
        self.keeping = Keeping(app)
        self.uploads = Uploads(app, reads)

    @property
    def _store(self) -> Store:
        return self._app._store

    # runs

    async def start(self, wanted: Start, act: Act) -> tuple[RunRow, bool]:
        """Store a run for any worker; False: it was there. Without an id, the key makes one."""
        known = await signals.definition(self._store, wanted.agent)
        defaults: Mapping[str, str] = known.get("defaults", {})
        coder = coder_for(Any)
        given = {name: coder.dumps(value, what=name) for name, value in wanted.input.items()}
        first = known.get("first")
        if first in given and (found := problems_outside(known.get("takes"), given[first])):
            raise misfit([f"{first}.{each}" if ": " in each else f"{first}: {each}" for each in found], wanted.agent)
        left = {name: text for name, text in defaults.items() if name not in given}
        members = [f"{json.dumps(name)}:{text}" for name, text in {**given, **left}.items()]
        read = Input.read("{" + ",".join(members) + "}", tuple(left))
        is_keyed = wanted.id is None and act.key is not None
        new = NewRun(
            agent=wanted.agent,
            args_text=read.text,
            args_digest=read.digest,
            run_id=f"k_{act.own_id.removeprefix('http:')}" if is_keyed else wanted.id,
            thread_id=wanted.thread_id,
            tags=wanted.tags,
            place=QueuePlace(
                wanted.queue or known.get("queue"),
                wanted.queue_key,
                wanted.priority,
                due_us(wanted.delay_s, "delay_s") or 0,
            ),
            args_given=read.given,
            defaults=read.defaults,
            outside=next(iter(given)) if len(given) == 1 else None,
        )
        try:
            run, is_new = await self._app._here.put(new, by=act.by, note=act.note)
        except ConflictingStart:
            if is_keyed:
                raise _reused() from None
            raise
        return await self._reads.row(run.id), is_new

    async def pause(self, run_id: str, act: Act) -> Outcome:
        if await self._was_done(run_id, act, "pause"):
            return await self._status(run_id), "already done"
        before = await self._status(run_id)
        status = await lifecycle.pause(self._store, RunId(run_id), by=act.by, note=act.note, own_id=act.own_id)
        if status is not Status.paused:
            raise Problem("not_now", f"The run is {status}; nothing was changed.", state=status.value)
        return status, "already done" if before is Status.paused else "paused"

    async def resume(self, run_id: str, act: Act, budget: Budget | None = None) -> Outcome:
        before = await self._status(run_id)
        if before.is_final:
            raise Problem("not_now", f"The run is {before}; a run that has ended is retried.", state=before.value)
        if await self._was_done(run_id, act, "resume"):
            return before, "already done"
        await lifecycle.go_on(self._store, RunId(run_id), by=act.by, note=act.note, own_id=act.own_id, budget=budget)
        return await self._status(run_id), "resumed"

    async def cancel(self, run_id: str, act: Act, *, kill: bool, waits: bool = True) -> Outcome:
        before = await self._status(run_id)
        if before is Status.cancelled or await self._was_done(run_id, act, "cancel"):
            return before, "already done"
        if before.is_final:
            raise Problem("run_finished", f"The run is {before}; nothing was changed.", was=before.value)
        ended = await lifecycle.cancel(
            self._store, RunId(run_id), by=act.by, note=act.note, kill=kill, own_id=act.own_id
        )
        give_up = monotonic_us() + int(_SOON_S * 1e6)
        while ended is None and waits and monotonic_us() < give_up:
            status = await self._status(run_id)
            ended = status if status.is_final else None
            await asyncio.sleep(_LOOK_S)
        if ended is None:
            return await self._status(run_id), "told to stop"
        return ended, "cancelled" if ended is Status.cancelled else "ended before"

    async def retry(self, run_id: str, act: Act) -> Outcome:
        """Open a run again that failed or was cancelled; any worker takes it up."""
        if await self._was_done(run_id, act, "retry"):
            return await self._status(run_id), "already done"
        row, records = await self._reads.load(run_id)
        refuse_empty(row)
        refuse_elsewhere(row)
        if row.status is Status.quarantined:
            raise CorruptJournal("", run_id=run_id)
        if row.status not in (Status.failed, Status.cancelled):
            raise Problem(
                "not_now",
                f"The run is {row.status}; only failed and cancelled runs are retried.",
                state=row.status.value,
            )
        check_records(row, records)
        refuse_undone(row, records)
        gone = superseded(records)
        if not await lifecycle.reopen(self._store, row, gone, by=act.by, note=act.note, own_id=act.own_id):
            raise Problem("not_now", "Somebody acted on the run at the same time; look at it again.")
        return Status.queued, "retried"

    async def interrupt(self, run_id: str, act: Act, *, message: Any, wait_s: float) -> dict[str, Any]:
        await self._reads.row(run_id)
        text = coder_for(Any).dumps(message, what="the message")
        number = await signals.interrupt(self._store, RunId(run_id), text, by=act.by, dedup=act.own_id or None)
        await self._check_key(run_id, act, "interrupt", value=text)
        replies = Replies(self._store, RunId(run_id), number)
        give_up = monotonic_us() + int(wait_s * 1e6)
        reply = await replies.look(await self._reads.row(run_id))
        while reply is None and monotonic_us() < give_up:
            await asyncio.sleep(_LOOK_S)
            reply = await replies.look(await self._reads.row(run_id))
        status = await self._status(run_id)
        if reply is None:
            return {"status": status.value, "what": "sent", "number": number, "reply_json": None}
        how, said = reply
        what = {"finished": "ended before", "failed": "handler failed"}.get(how, "replied")
        return {
            "status": status.value,
            "what": what,
            "number": number,
            "reply_json": said if what == "replied" else None,
        }

    async def send(self, run_id: str, act: Act, *, name: str, value: Any, dedup: str | None) -> bool:
        await self._reads.row(run_id)
        try:
            is_new = await self._app.get(run_id).send(name, value, dedup=dedup or act.own_id or None, by=act.by)
        except ConflictingSend:
            if dedup is None:
                raise _reused() from None
            raise
        except UsageError as error:
            raise Problem("does_not_fit", str(error), errors=[{"path": "", "message": str(error)}]) from None
        return is_new

    async def change_plan(self, run_id: str, ops: Sequence[Mapping[str, Any]], act: Act) -> int:
        """Send a run changes of its plan; the number of the mail."""
        await self._reads.row(run_id)
        number = await change_plan(self._store, RunId(run_id), ops, by=act.by, note=act.note, dedup=act.own_id or None)
        await self._check_key(run_id, act, "plan", ops=list(ops))
        return number

    async def _status(self, run_id: str) -> Status:
        return (await self._reads.row(run_id)).status

    # questions and effects in doubt

    async def decide(self, question_id: str, act: Act, *, shown: str, value: Any, declines: bool) -> dict[str, Any]:
        """Answer or decline a question, as it was shown."""
        question = await self._reads.question(question_id)
        row = question._row
        text = None if declines else coder_of(value).dumps(value, what="the answer")
        if text is not None and (found := problems_outside(question.schema, text)):
            raise misfit(found, "the question")
        if shown != question.shown and question.state is QuestionState.open:
            raise Problem(
                "question_changed", "Look at it again; nothing was decided.", question=question_object(question)
            )
        state = QuestionState.declined if declines else QuestionState.answered
        try:
            await decide(self._store, row, state, text, by=act.by, note=act.note, dedup=act.own_id or None)
        except AlreadyDecided as late:
            now = await self._reads.question(question_id)
            at = None if now.decided_at is None else question_object(now)["decided_at"]
            who = f" by {late.by}" if late.by else ""
            raise Problem(
                "already_decided",
                f"Question {question_id} was {late.state}{who}; nothing was changed.",
                state=str(late.state),
                by=late.by,
                at=at,
            ) from None
        except QuestionChanged:
            now = await self._reads.question(question_id)
            raise Problem(
                "question_changed", "Look at it again; nothing was decided.", question=question_object(now)
            ) from None
        await self._check_key(row.run_id, act, "answer", key=row.key, value=text, declined=declines)
        return question_object(await self._reads.question(question_id))

    async def settle(
        self,
        run_id: str,
        key: str,
        act: Act,
        *,
        verdict: Literal["happened", "not_happened", "failed"],
        value: Any,
        error: str,
        attempt: int,
    ) -> None:
        """Say what became of an effect."""
        await self._reads.row(run_id)
        if verdict == "happened":
            body = {"verdict": "landed", "value": coder_for(Any).dumps(value, what="the result")}
        elif verdict == "not_happened":
            body = {"verdict": "not_landed"}
        else:
            failed = StepError(error, error_type="StepError", error_message=error)
            body = {"verdict": "failed", "error": encode_error(failed)}
        try:
            await doubts.resolve(
                self._store,
                RunId(run_id),
                key,
                body,
                attempt=attempt,
                by=act.by,
                note=act.note,
                dedup=act.own_id or None,
            )
        except UsageError:
            raise Problem("no_such_call", f"Run {run_id!r} has no call {key!r}.") from None
        await self._check_key(run_id, act, "resolve", key=key, **body)

    # keys

    async def _was_done(self, run_id: str, act: Act, what: str) -> bool:
        """Was this very request carried out before? Problem if its key was used for something else."""
        if act.key is None:
            return False
        marked = [mail.kind for mail in await self._store.mail(RunId(run_id), after=0) if _is_marked(mail, act.own_id)]
        row = await self._reads.row(run_id)
        noted = (Kind.noted, Kind.reopened)
        async for page in record_pages(self._store, row):
            for record in (r for r in page if r.kind in noted and act.own_id in (r.payload or "")):
                note = json.loads(record.payload or "{}")
                if record.kind == Kind.reopened:
                    marked.append("retry")
                elif record.name == NoteKind.paused:
                    marked.append("pause" if note.get("on") else "resume")
                else:
                    marked.append("resume" if record.name == NoteKind.requeued else record.name)
        if any(each != what for each in marked):
            raise _reused()
        return bool(marked)

    async def _check_key(self, run_id: str, act: Act, kind: str, *, key: str = "", **said: Any) -> None:
        """Of mail that a key names there is one. If that says something else, the key was used for something else."""
        if act.key is None:
            return
        for mail in await self._store.mail(RunId(run_id), after=0):
            if mail.dedup == act.own_id and mail.body:
                body = json.loads(mail.body)
                is_same = all(body.get(name) == value for name, value in said.items())
                if (mail.kind, mail.key) != (kind, key) or not is_same:
                    raise _reused()

    # what starts runs

    async def emit(self, act: Act, *, name: str, value: Any, dedup: str | None) -> str:
        try:
            event = await self._app.emit(name, value, dedup=dedup or act.own_id or None, by=act.by, note=act.note)
        except ConflictingSend:
            if dedup is None:
                raise _reused() from None
            raise
        return event

    async def deliver(self, name: str, value: Any, *, dedup: str, by: str) -> str:
        """Emit the event of a delivery; ConflictingSend if its id was used for another one."""
        return await self._app.emit(name, value, dedup=dedup, by=by)

    async def pause_schedule(self, name: str, act: Act) -> None:
        await self._check_schedule(name)
        await self._app.pause_schedule(name, by=act.by, note=act.note)

    async def resume_schedule(self, name: str, act: Act) -> None:
        await self._check_schedule(name)
        await self._app.resume_schedule(name, by=act.by, note=act.note)

    async def remove_schedule(self, name: str, act: Act) -> None:
        await self._check_schedule(name)
        await self._app.remove_schedule(name, by=act.by, note=act.note)

    async def fire_schedule(self, name: str, act: Act) -> tuple[RunRow, bool]:
        """Start a run of a schedule now; with a key, the key makes its id."""
        await self._check_schedule(name)
        if act.key is None:
            run = await self._app.fire_schedule(name, by=act.by, note=act.note)
            run_id, is_new = run.id, True
        else:
            state = from_definition((await self._store.definitions(SCHEDULE, names=[name]))[0])
            run_id = RunId(f"{name}:{state.generation}:manual-{act.own_id.removeprefix('http:')}")
            is_new = await self._store.run(run_id) is None
            wanted = ScheduledStart(
                agent=state.agent,
                args_text=state.args,
                args_digest=state.args_digest,
                run_id=run_id,
                queue=state.queue,
                tags={"schedule": name},
                scheduled_at=now_us(),
                defaults=state.defaults,
            )
            done = act_on(act.by, act.note, "schedule run", target=name)
            await self._app._parts.starts.scheduled(wanted, done)
        return await self._reads.row(run_id), is_new

    async def backfill(self, name: str, act: Act, *, start: datetime, end: datetime) -> list[str]:
        """Start a run for each time in a range that has none; again, it finds nothing to start."""
        await self._check_schedule(name)
        started: list[str] = [
            run.id for run in await self._app.backfill_schedule(name, start, end, by=act.by, note=act.note)
        ]
        return started

    async def _check_schedule(self, name: str) -> None:
        if all(each.name != name for each in await self._app.schedules()):
            raise Problem("no_such_schedule", f"There is no schedule {name!r}.")

    async def pause_trigger(self, name: str, act: Act) -> None:
        await self._check_trigger(name)
        await self._app.pause_trigger(name, by=act.by, note=act.note)

    async def resume_trigger(self, name: str, act: Act) -> None:
        await self._check_trigger(name)
        await self._app.resume_trigger(name, by=act.by, note=act.note)

    async def remove_trigger(self, name: str, act: Act) -> None:
        await self._check_trigger(name)
        await self._app.remove_trigger(name, by=act.by, note=act.note)

    async def _check_trigger(self, name: str) -> None:
        if all(each.name != name for each in await self._app.triggers()):
            raise Problem("no_such_trigger", f"There is no trigger {name!r}.")

    async def pause_queue(self, name: str, act: Act) -> None:
        await self._app.pause_queue(name, by=act.by, note=act.note)

    async def resume_queue(self, name: str, act: Act) -> None:
        await self._app.resume_queue(name, by=act.by, note=act.note)

    async def limit_queue(
        self, name: str, act: Act, *, concurrency: int | None, per_key: int | None, rate: tuple[int, float] | None
    ) -> None:
        await self._app.queue(name, concurrency=concurrency, per_key=per_key, rate=rate, by=act.by, note=act.note)


def _is_marked(mail: Mail, own_id: str) -> bool:
    return mail.dedup == own_id or own_id in mail.body


def _reused() -> Problem:
    return Problem("key_reused", "Use another key for another request.")
