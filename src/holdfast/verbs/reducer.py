"""Reducers: agents that are a function of state and event, fed by signals."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

from holdfast.errors import Stop, UsageError
from holdfast.running.bodies import Body
from holdfast.running.options import Options, Retry, checked_name
from holdfast.verbs.agent import Agent
from holdfast.verbs.signal import Signal, receive
from holdfast.verbs.step import StepDefinition
from holdfast.verbs.turns import has_more_before_loop, turns

S = TypeVar("S")
E = TypeVar("E")

EVENT = "event"  #: the signal that events are sent as


@overload
def reducer(fn: Callable[[S, E], Coroutine[Any, Any, S]], /) -> Agent[[S], S]: ...
@overload
def reducer(fn: Callable[[S, E], S], /) -> Agent[[S], S]: ...
def reducer(fn: Callable[[Any, Any], Any], /) -> Agent[[Any], Any]:
    """Make a function `(state, event) -> state` an agent: it starts with a state and takes events one by one.

    Send them with `run.send("event", …)`; they are checked against the annotation of `event`. Each event is a turn
    (`hf.turns`), so each state is kept: `run.checkpoints()`, `run.state(turn)`. Raise `hf.Stop(state)` to end the run
    with that state. The function should be pure: it is a step, and may be repeated after a crash.

    Example:
        @hf.reducer
        def counter(total: int, event: int) -> int:
            if event == 0:
                raise hf.Stop(total)
            return total + event
    """
    name = checked_name(None, fn)
    parameters = list(inspect.signature(fn).parameters)
    if len(parameters) != 2:
        raise UsageError(f"@hf.reducer takes a function of a state and an event; {fn.__name__} has {parameters}.")
    annotations = inspect.get_annotations(fn, eval_str=True)
    state_type, event_type = annotations.get(parameters[0], Any), annotations.get(parameters[1], Any)
    signal: Signal[Any] = Signal(EVENT, event_type)

    async def reduce(state: Any, event: Any) -> Any:
        try:
            result: Any = fn(state, event)
            return (await result if inspect.isawaitable(result) else result), False
        except Stop as stop:
            return stop.state, True

    reduce.__annotations__ = {"return": tuple.__class_getitem__((state_type, bool))}
    step = StepDefinition(Body(reduce), Options(name, Retry(0), None, (Exception,), ()))

    boxed: Any = list.__class_getitem__(state_type)

    async def run(state: Any) -> Any:
        while has_more_before_loop():  # of a run that was begun when there were no turns
            state, is_over = await step.call((state, await receive(signal)), {})
            if is_over:
                return state
        async for box in turns([state], boxed):
            box[0], is_over = await step.call((box[0], await receive(signal)), {})
            if is_over:
                return box[0]

    functools.update_wrapper(run, fn, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    del run.__dict__["__wrapped__"]
    run.__annotations__ = {"state": state_type, "return": annotations.get("return", state_type)}
    agent: Agent[[Any], Any] = Agent(run, name=name, signals=[signal], written=fn)
    return agent
