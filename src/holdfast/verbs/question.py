"""Questions to people: yes or no, one of several, a form, a draft to edit. Answered in minutes or weeks.

What a person sees is stored with the question, under a digest; an answer names the digest it is for. So nobody approves
something that changed under their eyes. The first decision counts, whoever makes it; a timeout is a decision too.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from holdfast.base.clock import due_us, now_us
from holdfast.base.data import data
from holdfast.base.hints import hint
from holdfast.base.secrets import SECRETS
from holdfast.base.shields import go_on_with
from holdfast.codec import Coder, coder_for, digest, encode_error, read_outside
from holdfast.codec.schema import schema_of
from holdfast.durations import Duration
from holdfast.errors import Declined, Fenced, Undecodable, UsageError
from holdfast.journal.integrity import seal_question
from holdfast.model import Kind, NoteKind, QuestionRow, QuestionState, WaitKind
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.call import DurableCall
from holdfast.running.cleaning import to_its_end
from holdfast.running.options import explicit_key
from holdfast.running.outcomes import remember_key
from holdfast.running.scopes import Scope, in_branch
from holdfast.running.waiting import WaitCall, waiting

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from holdfast.journal.replay import Entry
    from holdfast.running.context import RunContext

T = TypeVar("T")

_NAME = "hf:ask"


@data
class Approval:
    """A yes or no with who said it, when, and why. Ask for one with `hf.ask(prompt, hf.Approval)`."""

    ok: bool
    note: str
    by: str
    at: datetime

    def __bool__(self) -> bool:
        return self.ok


@data
class Asked:
    """A question that was just asked, for `notify=`: what to tell whom."""

    id: str
    prompt: str
    run_id: str
    token: str
    command: str  #: how to answer it on the command line


class Notify(Protocol):
    """A step or effect that tells somebody of a question."""

    def with_options(self, *, key: str | None = None) -> Callable[[Asked], Awaitable[object]]: ...


@overload
async def ask(
    prompt: str, *, show: object = None, timeout: Duration | None = None, notify: Notify | None = None
) -> bool: ...
@overload
async def ask(
    prompt: str,
    type: TypeForm[T],
    *,
    show: object = None,
    timeout: Duration | None = None,
    notify: Notify | None = None,
) -> T: ...
@overload
async def ask(
    prompt: str,
    *,
    options: Sequence[T],
    show: object = None,
    timeout: Duration | None = None,
    notify: Notify | None = None,
) -> T: ...
@overload
async def ask(
    prompt: str, *, draft: T, show: object = None, timeout: Duration | None = None, notify: Notify | None = None
) -> T: ...
async def ask(
    prompt: str,
    type: Any = None,
    *,
    options: Sequence[Any] | None = None,
    draft: Any = None,
    show: object = None,
    timeout: Duration | None = None,
    notify: Notify | None = None,
) -> Any:
    """Ask a person, and wait for the answer without a process.

    Plain, it is a yes-or-no question. With a type the answer is a value of it: a form from a pydantic model or a
    dataclass, or `hf.Approval` for a yes or no with a note and a name. `options` gives a choice, `draft` a proposal to
    edit. `show` is what the person has to see to decide. Raises Declined if the person declines, TimeoutError when
    nobody answered in time. `notify` is a step or effect that gets an `Asked` once, to tell somebody.

    Example: `if not await hf.ask("Send it?", show=text, timeout=timedelta(days=3)): return "dropped"`
    """
    scope = in_branch("hf.ask()")
    return await AskCall(scope, _Form.of(prompt, type, options, draft, show), timeout, notify).make()


def question_id(run: RunContext, key: str) -> str:
    """The id of the question that a call asks; the same on every replay."""
    return "q_" + blake2b(run.place(key).encode(), digest_size=6).hexdigest()


async def _withdraw_forsaken(scope: Scope) -> None:
    """The code asks something that it did not ask before: what this branch asked instead is not asked any more."""
    run = scope.run
    for entry in run.replay.forsaken(scope.path, _NAME):
        close = partial(run.host.store.close_question, run.id, entry.key, QuestionState.withdrawn, now_us())
        await run.patiently(close)


def _notification(key: str) -> str:
    return f"{key}.notify"


async def _notify(run: RunContext, key: str, form: _Form, notify: Notify) -> None:
    question = question_id(run, key)
    asked = Asked(question, form.prompt, run.id, f"{run.id}@{run.thread_id}", hint("answer", question))
    await notify.with_options(key=_notification(key))(asked)


@dataclass(slots=True)
class _Form:
    """What is asked, and how an answer is read."""

    prompt: str
    kind: str  #: yesno approval options form draft
    coder: Coder[Any]
    text: str  #: all that a person sees, as JSON text
    shown: str

    @classmethod
    def of(cls, prompt: str, type_: Any, options: Sequence[Any] | None, draft: Any, show: object) -> _Form:
        if not isinstance(prompt, str) or not prompt.strip():
            raise UsageError(f"hf.ask() takes a text to ask; got {prompt!r}.")
        prompt = SECRETS.without(prompt) if SECRETS.is_any else prompt
        if sum(given is not None for given in (type_, options, draft)) > 1:
            raise UsageError("hf.ask() takes one of a type, options= and draft=.")
        choices: dict[str, Any] = {}
        kind = "yesno"
        schema: dict[str, Any] | None = {"type": "boolean"}
        asked_type: Any = bool
        proposal: str | None = None
        if options is not None:
            if isinstance(options, str):
                raise UsageError(f"hf.ask(options=…) takes a list of them; got {options!r}.")
            kind, choices = "options", {_label(option): option for option in options}
            if not choices or len(choices) < len(options):
                raise UsageError("hf.ask(options=…) takes at least one option, and no two that read the same.")
            schema, asked_type = {"enum": list(choices)}, str
        elif draft is not None:
            kind, asked_type = "draft", type(draft)
            schema = schema_of(asked_type)
            proposal = coder_for(asked_type).dumps(draft, what="the draft")
        elif type_ is Approval:
            kind, asked_type = "approval", Approval
        elif type_ is not None and type_ is not bool:
            kind, asked_type, schema = "form", type_, schema_of(type_)
        coder: Coder[Any] = _Choices(choices) if options is not None else coder_for(asked_type)
        shown = None if show is None else coder_for(type(show)).dumps(show, what="what is shown")
        text = json.dumps(
            {
                "prompt": prompt,
                "show": shown,
                "kind": kind,
                "options": list(choices) if choices else None,
                "schema": schema,
                "draft": proposal,
            }
        )
        return cls(prompt, kind, coder, text, digest(text))

    def read(self, given: dict[str, Any]) -> tuple[str, Any]:
        """The answer as it is recorded, and as the agent gets it; Undecodable if it does not fit."""
        text: str = given["value"]
        match self.kind:
            case "approval":
                ok = coder_for(bool).loads(text, what="the answer")
                at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=given["at"])
                return self.coder.roundtrip(Approval(ok, given["note"], given["by"], at), what="the answer")
            case "options":
                return text, self.coder.loads(text)
            case _:
                return read_outside(self.coder.annotation, text, what="the answer")


class _Choices(Coder[Any]):
    """Reads the label of an option as the option; what an option is need not be stored."""

    def __init__(self, choices: dict[str, Any]) -> None:
        super().__init__(Any)
        self._choices = choices

    def loads(self, text: str, *, what: str = "the answer") -> Any:
        label = json.loads(text)
        if label not in self._choices:
            raise Undecodable(f"{what}: {label!r} is none of the options {', '.join(self._choices)}")
        return self._choices[label]


def _label(option: Any) -> str:
    return str(getattr(option, "value", option))


class AskCall(DurableCall[Any]):
    """One question, from its opening to its end."""

    __slots__ = ("form", "notify", "timeout")

    outlasts = False  # nobody knows whether a person answers: in clean-up too, whoever cancels is heard

    def __init__(self, scope: Scope, form: _Form, timeout: Duration | None, notify: Notify | None) -> None:
        super().__init__(scope, _NAME, form.shown)
        self.form = form
        self.timeout = timeout
        self.notify = notify

    @property
    def coder(self) -> Coder[Any]:
        return self.form.coder

    @property
    def raises(self) -> tuple[type[BaseException], ...]:
        return (Declined,)

    async def go(self) -> Any:
        entry, notify = self.entry, self.notify
        is_over = entry is not None and entry.outcome is not None
        if notify is not None and entry is not None and is_over and self._was_notified(entry):
            await _notify(self.run, entry.key, self.form, notify)
            self.notify = None
        return await super().go()

    def _was_notified(self, entry: Entry) -> bool:
        """Then that is a recorded call too, which comes before the answer."""
        return self.run.turning.named(explicit_key(_notification(entry.key))) in self.run.replay.entries

    async def execute(self) -> Any:
        run, form = self.run, self.form
        if self.entry is None and run.replay.unclaimed:
            await _withdraw_forsaken(self.scope)
        due = due_us(self.timeout, "hf.ask(timeout=)")
        more = {"question": question_id(run, self.key)}
        async with waiting(self, due_us=due, args=form.text, more=more) as call:
            return await self._settle(call)

    async def _settle(self, call: WaitCall) -> Any:
        run = self.run
        again = run.replay.refusals.get(call.key, 0)
        while True:
            key = call.key if not again else f"{call.key}.{again + 1}"
            given: dict[str, Any] | None = None
            try:
                given = await self._decision(key, call.due_us)
                if given == {}:
                    again += 1  # withdrawn just before a crash, and now the code waits for it: it is asked anew
                    continue
                if given is None:
                    raise TimeoutError(f"run {run.id}: nobody answered {self.form.prompt!r} in time")
                if given.get("declined"):
                    note = f": {given['note']}" if given["note"] else ""
                    raise Declined(f"{given['by']} declined {self.form.prompt!r}{note}")
                payload, value = self.form.read(given)
            except Undecodable as error:
                again += 1
                note = json.dumps({"mail": given["mail"] if given else 0, "problem": str(error)})
                run.journal.add(Kind.noted, call.key, NoteKind.refused, payload=note)
                continue
            except (TimeoutError, Declined) as error:
                await call.end(Kind.failed, encode_error(error))
                raise remember_key(error, call.key) from None
            except Fenced:
                await run.fenced()
                raise
            except BaseException as error:
                if not run.life.dead:
                    _, kept = await to_its_end(run, self._withdraw())
                    go_on_with(error, kept)
                raise
            await call.end(Kind.done, payload)
            return value

    async def _withdraw(self) -> None:
        """Nobody waits for an answer any more, under whichever key it was asked last."""
        run, key = self.run, self.key
        with suppress(Fenced):
            for row in await run.host.store.questions(run_id=run.id):
                if row.key == key or row.key.startswith(f"{key}."):
                    await run.host.store.close_question(
                        run.id, row.key, QuestionState.withdrawn, now_us(), fence=run.fence
                    )

    async def _decision(self, key: str, due_us: int | None) -> dict[str, Any] | None:
        """What was answered; None: it is too late; empty: the question was withdrawn."""
        run, store = self.run, self.run.host.store
        with run.activity.busy():
            await run.journal.barrier()  # a question leaves the run: its past is on disk first
            asking = run.patiently(lambda: store.open_question(self._row(key, due_us), fence=run.fence))
            row, cancelled = await to_its_end(run, asking)
        if cancelled is not None:
            raise cancelled
        if self.notify is not None:
            was_in_call = self.scope.in_call
            self.scope.leave_call()
            try:
                await _notify(run, self.key, self.form, self.notify)
            finally:
                self.scope.leave_call(was_in_call)
            self.notify = None  # once, however often it is asked
        shown = {"name": "ask", "question": row.id, "prompt": self.form.prompt[:200]}
        while True:
            if (answered := run.inbox.answer(key)) is not None:
                return answered
            if row.state is QuestionState.expired:
                return None
            if row.state is QuestionState.withdrawn:
                return {}
            if row.state is QuestionState.open:
                given: dict[str, Any] | None = await run.waits.wait(key, WaitKind.question, shown, due_us=due_us)
                if given is None:
                    with run.activity.busy():
                        closed = await run.patiently(
                            lambda: store.close_question(run.id, key, QuestionState.expired, now_us(), fence=run.fence)
                        )
                    row = closed or row
                continue
            with run.activity.busy():
                await run.host.read_mail(run.id)  # it is decided, so the answer is there
            if run.inbox.answer(key) is None:
                await run.block(Blocked(Trouble(Cause.answer, key, detail=f"question {row.id} is {row.state}")))

    def _row(self, key: str, due_us: int | None) -> QuestionRow:
        run = self.run
        body = {**json.loads(self.form.text), "agent": run.journal.row.agent, "thread": run.thread_id}
        return seal_question(
            QuestionRow(
                id=question_id(run, key),
                run_id=run.id,
                key=key,
                body=json.dumps(body),
                shown=self.form.shown,
                asked_at=now_us(),
                due_at=due_us,
                state=QuestionState.open,
                decided_at=None,
                decided_by=None,
                note="",
                digest="",
            )
        )
