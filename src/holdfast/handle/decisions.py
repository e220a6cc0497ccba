"""What people decide: questions that runs ask, and effects that nobody can tell whether they happened."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.base.clock import as_time
from holdfast.base.data import data
from holdfast.codec import Coder, coder_for, coder_of, encode_error
from holdfast.codec.schema import refuse_misfit
from holdfast.control import doubts, questions
from holdfast.errors import UsageError
from holdfast.handle.acts import durable, is_in_run
from holdfast.journal.integrity import check_question
from holdfast.model import QuestionRow, QuestionState, RunId
from holdfast.store.contract import Store
from holdfast.verbs.effect.settling import Verdict
from holdfast.verbs.remote import answer_in, settle_in


@data
class Question:
    """A question that a run asks, as it was when it was read."""

    _store: Store
    _row: QuestionRow
    id: str
    run_id: str
    key: str
    agent: str
    thread_id: str
    prompt: str
    show: Any  #: what the person has to see to decide, as plain JSON
    kind: str  #: yesno, approval, options, form or draft
    options: list[str] | None
    schema: dict[str, Any] | None  #: JSON schema of the answer
    draft: Any  #: the proposal to edit, as plain JSON
    asked_at: datetime
    due_at: datetime | None
    state: QuestionState
    decided_at: datetime | None
    decided_by: str | None
    note: str
    shown: str  #: digest of all that is shown; an answer is for this

    @classmethod
    def _of(cls, store: Store, row: QuestionRow) -> Question:
        check_question(row)
        body = json.loads(row.body)
        return cls(
            _store=store,
            _row=row,
            id=row.id,
            run_id=row.run_id,
            key=row.key,
            agent=body["agent"],
            thread_id=body["thread"],
            prompt=body["prompt"],
            show=None if body["show"] is None else json.loads(body["show"]),
            kind=body["kind"],
            options=body["options"],
            schema=body["schema"],
            draft=None if body["draft"] is None else json.loads(body["draft"]),
            asked_at=as_time(row.asked_at),
            due_at=None if row.due_at is None else as_time(row.due_at),
            state=row.state,
            decided_at=None if row.decided_at is None else as_time(row.decided_at),
            decided_by=row.decided_by,
            note=row.note,
            shown=row.shown,
        )

    @durable
    async def answer(self, value: Any, *, by: str | None = None, note: str = "") -> None:
        """Answer it. The first decision counts: AlreadyDecided says who won; UsageError what is wrong with the value.

        A question that shows something else by now raises QuestionChanged: look at it again.

        Example: `await question.answer(True, note="looks good")`
        """
        text = coder_of(value).dumps(value, what="the answer")
        refuse_misfit(self.schema, text, f"the question {self.prompt!r}")
        await self._decide(QuestionState.answered, text, by=by, note=note)

    @durable
    async def decline(self, *, by: str | None = None, note: str = "") -> None:
        """Decline to answer: the agent gets `Declined`.

        Example: `await question.decline(note="ask legal")`
        """
        await self._decide(QuestionState.declined, None, by=by, note=note)

    async def _decide(self, state: QuestionState, text: str | None, *, by: str | None, note: str) -> None:
        decision = partial(questions.decide, self._store, self._row, state, text, note=note)
        if not is_in_run():
            await decision(by=by)
            return
        await answer_in(self.id, text, decision, by=by)


@data
class InDoubt:
    """An effect that may or may not have happened."""

    _store: Store
    run_id: str
    key: str
    name: str
    attempt: int
    args: str | None  #: what it was called with, as JSON text
    idempotency_key: str
    since: int  #: when its intent was recorded, µs
    cause: str

    @durable
    async def resolve(self, verdict: Verdict[object] | Exception, *, by: str | None = None, note: str = "") -> None:
        """Say what became of it: `hf.landed(result)`, `hf.not_landed()`, or an exception for the agent to see.

        Stored with who said so and why; the run goes on from there. AlreadySettled if somebody was first. Inside a run
        this is a durable call.

        Example: `await doubt.resolve(hf.landed("msg-17"), note="seen in the outbox")`
        """
        if isinstance(verdict, Exception):
            body = {"verdict": "failed", "error": encode_error(verdict)}
        elif not isinstance(verdict, Verdict):
            raise UsageError(f"resolve() takes hf.landed(…), hf.not_landed() or an exception, not {verdict!r}.")
        elif verdict.has_landed:
            coder: Coder[Any] = coder_for(type(verdict.result))
            body = {"verdict": "landed", "value": coder.dumps(verdict.result, what="the result")}
        else:
            body = {"verdict": "not_landed"}
        settle = partial(
            doubts.resolve, self._store, RunId(self.run_id), self.key, body, attempt=self.attempt, note=note
        )
        if not is_in_run():
            await settle(by=by)
            return
        await settle_in(self.run_id, self.key, self.attempt, body, settle, by=by)
