"""Interrupts: messages that are handled in a branch of their own, while the main line is held at a durable boundary.

Where the main line was when the handler began is a record with a tick, so is the handler's end; a replay starts the
handler at the same place. What the handler is told about the main line stands in the first of them.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
from collections import deque
from typing import Any

from holdfast.base import faults
from holdfast.codec import coder_for, encode_error, read_outside, result_annotation
from holdfast.errors import HoldfastError
from holdfast.model import OUTCOMES, Kind
from holdfast.running.context import RunContext
from holdfast.running.current import outside
from holdfast.running.gate import HANDLER
from holdfast.running.raising import raised
from holdfast.running.scopes import Scope, enter
from holdfast.verbs.agent import Agent, MainLine

END = ".end"
_CALLS = 20


class Interrupts:
    """The interrupts of one run, handled one after the other."""

    def __init__(self, run: RunContext, agent: Agent[..., Any]) -> None:
        self._run = run
        self._agent = agent
        self._waiting: deque[dict[str, Any]] = deque()
        self._under_way = False
        self._has_begun = False

    @property
    def has_news(self) -> bool:
        """Is one about to begin?"""
        return bool(self._waiting) or self._under_way

    def begin(self) -> None:
        """The code starts: handle anew, at the same places, what was handled before."""
        run = self._run
        for entry in [e for e in run.replay.entries.values() if e.name == HANDLER]:
            assert entry.outcome is not None
            told = json.loads(run.text(entry.outcome.payload))
            run.replay.pass_by(entry)
            run.activity.begin_line()
            run.gate.begin_handler()
            key = entry.key
            run.ticks.await_recorded(entry, lambda key=key, told=told: self._handle(key, told))  # type: ignore[misc]
        self._has_begun = True
        self._next()

    def add(self, body: dict[str, Any]) -> None:
        self._waiting.append(body)
        self._run.inbox.interrupted(body["mail"])
        self._next()

    def _next(self) -> None:
        if self._waiting and self._has_begun and not self._under_way and not self._run.gate.handlers:
            self._under_way = True
            asyncio.Task(self._start(self._waiting.popleft()), loop=self._run.life.loop, context=outside())

    async def _start(self, body: dict[str, Any]) -> None:
        run = self._run
        await run.ticks.wait_replayed(lambda: True)
        with run.activity.busy():
            await run.journal.barrier()
            main = await self._main_line()
        if run.life.dead:
            return
        faults.point("interrupt.before")
        told = {"mail": body["mail"], "by": body["by"], "value": body["value"], "main": main}
        key = f"{HANDLER}#{body['mail']}"  # named by what nobody else has, in whichever turn
        run.activity.begin_line()
        run.gate.begin_handler()

        def deliver(tick: int) -> None:
            run.journal.add(Kind.done, key, HANDLER, tick=tick, digest=str(body["mail"]), payload=json.dumps(told))
            self._under_way = False
            run.inbox.handling(body["mail"])
            self._handle(key, told)

        run.ticks.complete(deliver)

    async def _main_line(self) -> dict[str, Any]:
        """Where the main line stands, from what is on disk."""
        run = self._run
        cut = run.journal.row.cut
        after = 0 if cut is None else cut.seq  # what was before the turn is told by the state
        ended = [
            record
            for record in await run.patiently(lambda: run.host.store.records(run.id, after=after))
            if record.kind in OUTCOMES and record.key and not record.name.startswith(("hf.", "hf:"))
        ]
        last = next((record for record in reversed(ended) if record.kind == Kind.done), None)
        summary = run.journal.summary
        return {
            "now": summary.get("now") or (ended[-1].key if ended else ""),
            "calls": [record.key for record in ended[-_CALLS:]],
            "last": None if last is None else run.text(last.payload) if not _is_spilled(run, last.payload) else None,
            "progress": summary.get("progress"),
        }

    def _handle(self, key: str, told: dict[str, Any]) -> None:
        run = self._run
        number = key.rpartition("#")[2]
        scope = Scope(run, f"{HANDLER}~{number}")
        run.replay.reappeared.add(scope.path)
        context = contextvars.copy_context()
        context.run(enter, scope)
        task = asyncio.Task(self._run_handler(scope, key, told), loop=run.life.loop, context=context)
        scope.created(task)
        run.adopt(task, scope)

    async def _run_handler(self, scope: Scope, key: str, told: dict[str, Any]) -> None:
        run = self._run
        try:
            kind, payload = await self._reply(told)
            entry = run.replay.entries.get(key + END)
            turn: asyncio.Future[int] = run.life.loop.create_future()
            scope.enter_call()
            if entry is not None and entry.outcome is not None:
                run.replay.pass_by(entry)
                run.ticks.await_recorded(entry, lambda: _set(turn, 0))
                await turn
            else:
                run.ticks.complete(lambda tick: _set(turn, tick))
                note = json.dumps({"mail": told["mail"], "reply": payload})
                run.journal.add(kind, key + END, HANDLER + END, tick=await turn, payload=note)
        finally:
            scope.leave_call()
            run.gate.end_handler()
            self._next()

    async def _reply(self, told: dict[str, Any]) -> tuple[Kind, str]:
        """What the handler returned; an error there is the reply, and does not reach the main line."""
        handler = self._agent._interrupted
        if handler is None:
            return Kind.failed, encode_error(HoldfastError(f"{self._agent.name} has no handler for interrupts."))
        main = told["main"]
        last = None if main["last"] is None else coder_for(Any).loads(main["last"], what="the last result")
        line = MainLine(main["now"], tuple(main["calls"]), last, main["progress"], self._run.turning.state())
        try:
            _, message = read_outside(_message_type(handler), told["value"], what="the message")
            takes = len(inspect.signature(handler).parameters)
            value = await (handler(message, line) if takes > 1 else handler(message))
            return Kind.done, coder_for(result_annotation(handler)).dumps(value, what="the reply")
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return Kind.failed, encode_error(raised(error, is_over=self._run.life.dead))
        except BaseException as error:
            return Kind.failed, encode_error(raised(error, is_over=self._run.life.dead))


def _set(turn: asyncio.Future[int], tick: int) -> None:
    if not turn.done():
        turn.set_result(tick)


def _message_type(handler: Any) -> Any:
    first = next(iter(inspect.signature(handler).parameters), "")
    return inspect.get_annotations(handler, eval_str=True).get(first, Any)


def _is_spilled(run: RunContext, payload: str | None) -> bool:
    try:
        run.text(payload)
    except KeyError:
        return True
    return False
