"""A session of the OpenAI Agents SDK in the store of the runs: what agents have said, from run to run.

    result = await run(agent, "go", session=Session("ada"))                    # in an agent of Holdfast
    result = await Runner.run(agent, "go", session=Session("ada", app=app))    # outside of a run

In a run each call is a step. A replay reads what was read then, and a change that was cut off is made once: it is noted
with the change, under the idempotency key of the step. Items are numbered documents; the head of the session says which
of them it has, and advances with them in one transaction.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_jsonable_python

import holdfast as hf
from holdfast import ext
from holdfast.ext.generations import remove_before
from holdfast.ext.openai_agents import place_of_bot

if TYPE_CHECKING:
    from agents.memory import SessionSettings

    from holdfast.app.app import Holdfast
    from holdfast.app.extensions import Extension

_HEADS: Final = "sessions"
_ITEMS: Final[ext.Codec[Any]] = ext.Codec(dump=lambda got: got, load=lambda got: got, outside=lambda got: got)
_READ, _ADD, _POP, _CLEAR = (
    ext.Operation(name, codec=_ITEMS, retries=2) for name in ("get_items", "add_items", "pop_item", "clear_session")
)
Change = Callable[["_Log"], Awaitable[tuple[Any, dict[str, tuple[str, int]]]]]


@dataclass
class _Log:
    """The head of a session: the numbers of its items, from and up to, and the next one."""

    session_id: str
    generation: int = 0
    next: int = 0
    ranges: list[list[int]] = field(default_factory=list)

    def space(self, generation: int | None = None) -> str:
        return f"{self.generation if generation is None else generation}:{self.session_id}"

    def numbers(self) -> list[int]:
        return [number for start, end in self.ranges for number in range(start, end)]


class Session:
    """What was said in a conversation, for `session=` of the SDK. What a call has stored is on disk when it returns.

    Two that add to one session at the same time are both heard, one after the other.

    Example: `await Runner.run(agent, "Hello.", session=Session("ada", app=app))`
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        *,
        app: Holdfast | None = None,
        name: str = "openai_agents",
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._app, self._name = app, name
        self._opened: Extension | None = None

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """What was said, the latest `limit` of it.

        Example: `items = await session.get_items(limit=20)`
        """
        settings = self.session_settings
        most = settings.limit if limit is None and settings is not None else limit
        found: list[Any] = await self._durably(_READ, lambda _: self._read(most))
        return found

    async def add_items(self, items: list[Any]) -> None:
        """Add what was said, all of it or nothing.

        Example: `await session.add_items([{"role": "user", "content": "Hello."}])`
        """
        texts = [json.dumps(to_jsonable_python(each)) for each in items]

        async def add(log: _Log) -> tuple[None, dict[str, tuple[str, int]]]:
            start, log.next = log.next, log.next + len(texts)
            if log.ranges and log.ranges[-1][1] == start:
                log.ranges[-1][1] = log.next
            else:
                log.ranges.append([start, log.next])
            return None, {_key(start + at): (text, 0) for at, text in enumerate(texts)}

        if texts:
            await self._durably(_ADD, lambda mark: self._change(mark, add))

    async def pop_item(self) -> Any:
        """Take back what was said last; None if nothing was.

        Example: `last = await session.pop_item()`
        """

        async def pop(log: _Log) -> tuple[Any, dict[str, tuple[str, int]]]:
            if not log.ranges:
                return None, {}
            log.ranges[-1][1] = last = log.ranges[-1][1] - 1
            log.ranges = [each for each in log.ranges if each[0] < each[1]]
            item = await self._documents().get(log.space(), _key(last))
            return None if item is None else json.loads(item.text), {}

        return await self._durably(_POP, lambda mark: self._change(mark, pop))

    async def clear_session(self) -> None:
        """Forget what was said.

        Example: `await session.clear_session()`
        """

        async def clear(log: _Log) -> tuple[None, dict[str, tuple[str, int]]]:
            log.generation, log.ranges = log.generation + 1, []
            return None, {}

        await self._durably(_CLEAR, lambda mark: self._change(mark, clear))

    async def _durably(self, operation: ext.Operation, call: Callable[[str | None], Awaitable[Any]]) -> Any:
        if not ext.active():
            return await call(None)
        with ext.place(f"{place_of_bot() or 'session'}/session/{ext.segment(self.session_id)}"):
            return await operation(lambda: call(hf.this_step().idempotency_key))

    async def _read(self, limit: int | None) -> list[Any]:
        while True:
            log, _ = await self._head()
            numbers = log.numbers()
            numbers = numbers[max(0, len(numbers) - limit) :] if limit is not None else numbers
            found = await self._documents().read(log.space(), [_key(number) for number in numbers])
            if len(found) == len(numbers) or (await self._head())[0] == log:  # unless some were removed meanwhile
                return [json.loads(each.text) for each in found]

    async def _change(self, mark: str | None, change: Change) -> Any:
        """Advance the head by a change that is made once under its mark."""
        documents, marks = self._documents(), f"done:{self.session_id}"
        while True:
            log, revision = await self._head()
            done = await documents.get(marks, mark) if mark is not None else None
            if done is not None:
                return json.loads(done.text)
            was = copy.deepcopy(log)
            result, items = await change(log)
            others = {log.space(): items, **({marks: {mark: (json.dumps(result), 0)}} if mark is not None else {})}
            head = json.dumps(asdict(log))
            if await documents.advance(_HEADS, self.session_id, head, revision=revision, others=others):
                break
        if log.generation != was.generation:
            await remove_before(documents, log.generation, log.space)
        elif gone := set(was.numbers()) - set(log.numbers()):
            await documents.remove(log.space(), [_key(number) for number in gone])
        return result

    async def _head(self) -> tuple[_Log, int]:
        head = await self._documents().get(_HEADS, self.session_id)
        return (_Log(self.session_id), 0) if head is None else (_Log(**json.loads(head.text)), head.revision)

    def _documents(self) -> Extension:
        if self._app is None:
            return ext.documents(self._name)
        if self._opened is None:
            self._opened = self._app.extension(self._name)
        return self._opened


def _key(number: int) -> str:
    return f"{number:012}"
