"""Graphs of LangGraph inside a run: `drive` runs one, `durable` makes the calls of its nodes durable.

    from holdfast.ext.langgraph import drive, durable

    send = durable(mailer.send)          # an effect; durable(search, kind="step") may be repeated

    async def notify(state: State) -> dict:
        return {"sent": await send(state["to"])}

    @hf.agent
    async def bot(to: str) -> dict:
        return await drive(graph, {"to": to})

A node runs again from its top after `interrupt()` and under a `RetryPolicy`. A call is named by its superstep, its node
and its count there, so one that has happened answers, and is not made again: `graph:1/2/notify/key:send.1`. What an
`interrupt()` asks is a question of the run; the graph itself stores nothing (`InMemorySaver`), the journal has it all.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar, overload

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.pregel import Pregel
from langgraph.runtime import get_runtime
from langgraph.types import Command

import holdfast as hf
from holdfast import ext

P = ParamSpec("P")
R = TypeVar("R")

_COUNTS: Final = "langgraph"
_graph: ContextVar[str | None] = ContextVar("holdfast_langgraph", default=None)


class Node:
    """The node that the code is in: its place, and the calls that this attempt of it has made."""

    def __init__(self, path: str, attempt: object) -> None:
        self.path = path
        self.attempt = attempt
        self.calls: dict[str, int] = {}

    @classmethod
    def current(cls) -> Node:
        """The same object for all calls of one attempt of one node in one superstep."""
        graph, config = _graph.get(), get_config()
        told: Mapping[str, Any] = config.get("metadata") or {}
        names: list[str] = []
        place = ""
        for part in str(told.get("langgraph_checkpoint_ns", "")).split("|"):
            name, _, task = part.partition(":")
            place = (
                f"{place}/{ext.segment(name)}{_alias(f'{graph}{place}/{name}', task) if names or '|' in part else ''}"
            )
            names.append(name)
        where = [str(part) for part in told.get("langgraph_path", ()) if not str(part).startswith("__")]
        tail = "".join(f".{ext.segment(part)}" for part in where if part != names[-1])
        path = f"{graph}/{told.get('langgraph_step', 0)}{place}{tail}"
        info = get_runtime().execution_info
        attempt = (info.node_first_attempt_time, info.node_attempt) if info is not None else None
        known: dict[str, Node] = ext.local().setdefault(_COUNTS, {})
        node = known.get(path)
        if node is None or node.attempt != attempt:
            node = known[path] = cls(path, attempt)
        return node

    def key(self, name: str) -> str:
        """The name of the next call: what failed for sure in an attempt before is made anew, under another."""
        count = self.calls[name] = self.calls.get(name, 0) + 1
        key = f"{name}.{count}"
        failed = _failed().get(f"{self.path}/{key}", 0)
        return key if not failed else f"{key}!{failed}"

    def has_failed(self, key: str) -> None:
        first = f"{self.path}/{key.partition('!')[0]}"
        _failed()[first] = _failed().get(first, 0) + 1


def _failed() -> dict[str, int]:
    found: dict[str, int] = ext.local().setdefault(f"{_COUNTS}:failed", {})
    return found


def _alias(name: str, task: str) -> str:
    """Which of its name a subgraph is, in the order in which they began: its id is another in each process."""
    known: dict[str, dict[str, int]] = ext.local().setdefault(f"{_COUNTS}:tasks", {})
    number = known.setdefault(name, {}).setdefault(task, len(known[name]) + 1)
    return f":{number}"


def in_graph() -> bool:
    """Is this a node of a graph that `drive` runs?"""
    return _graph.get() is not None and ext.active()


async def call_once(operation: ext.Operation, fn: Callable[[], Any], *, name: str, shown: Mapping[str, Any]) -> Any:
    """Make a call of the current node: once, however often the node runs from its top."""
    node = Node.current()
    key = node.key(name)
    with ext.place(node.path, sealed=True):
        try:
            return await operation(fn, key=key, again="answer", shown=shown)
        except Exception:
            node.has_failed(key)
            raise


@overload
def durable(fn: Callable[P, Awaitable[R]], /, *, kind: str = "effect", **options: Any) -> Callable[P, Awaitable[R]]: ...
@overload
def durable(fn: Callable[P, R], /, *, kind: str = "effect", **options: Any) -> Callable[P, R]: ...
def durable(fn: Callable[..., Any], /, *, kind: str = "effect", **options: Any) -> Callable[..., Any]:
    """Have a function that nodes call happen once: an "effect", or a "step". It stays what it is: async or plain.

    `options` are those of `ext.Operation`. Outside of a graph that `drive` runs it is the plain function.

    Example: `send = durable(mailer.send, raises=(Refused,))`
    """
    name = str(options.pop("name", getattr(fn, "__name__", "call")))
    is_async = inspect.iscoroutinefunction(fn)
    operation = ext.Operation(name, kind, returns=ext.returned(fn), is_async=is_async, **options)  # type: ignore[arg-type]
    signature = inspect.signature(fn)

    async def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shown = dict(signature.bind(*args, **kwargs).arguments)
        return await call_once(operation, lambda: fn(*args, **kwargs), name=name, shown=shown)

    @functools.wraps(fn)
    async def durable_async(*args: Any, **kwargs: Any) -> Any:
        return await called(args, kwargs) if in_graph() else await fn(*args, **kwargs)

    @functools.wraps(fn)
    def durable_plain(*args: Any, **kwargs: Any) -> Any:
        return ext.from_thread(called(args, kwargs)) if in_graph() else fn(*args, **kwargs)

    return durable_async if is_async else durable_plain


async def drive(
    graph: Pregel[Any, Any, Any, Any],
    input: Any,
    *,
    config: Mapping[str, Any] | None = None,
    answers: Any = Any,
    **options: Any,
) -> Any:
    """Run a graph inside a run, to its end: each `interrupt()` is a question, and waits without a process.

    `answers` is the type of what is answered. `options` are those of `ainvoke`. After a crash the graph runs again from
    its start; what its nodes called through `durable` answers from the journal.

    Example: `state = await drive(graph, {"to": "ada"})`
    """
    if not ext.active():
        raise hf.NotInRun("drive() works inside a run only: call it from an agent (or what an agent calls).")
    path = ext.occurrence(graph.name if graph.name != "LangGraph" else "graph")
    own: Any = graph.copy(update={"checkpointer": InMemorySaver()})
    given = dict(config or {})
    given["configurable"] = {"thread_id": f"{hf.this_run().id}/{path}", **given.get("configurable", {})}
    token, asked = _graph.set(path), 0
    try:
        result = await own.ainvoke(input, given, **options)
        while isinstance(result, Mapping) and (interrupts := result.get("__interrupt__")):
            replies = {}
            for each in interrupts:
                asked += 1
                with ext.place(f"{path}/interrupt/{asked}"):
                    replies[each.id] = await hf.ask(_prompt(each.value), answers, show=each.value)
            result = await own.ainvoke(Command(resume=replies), given, **options)
        return result
    finally:
        _graph.reset(token)


def _prompt(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        found = next(
            (value[name] for name in ("question", "prompt", "message") if isinstance(value.get(name), str)), ""
        )
        return found or "The graph asks."
    return "The graph asks."
