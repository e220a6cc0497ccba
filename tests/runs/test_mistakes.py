"""Natural mistakes in what verbs are given: each is told what it takes, and what it got."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast as hf
from holdfast.errors import UsageError

Verb = Callable[[], Awaitable[object]]


async def done(value: object) -> object:
    return value


async def used(tokens: Any) -> None:
    hf.usage(model="m", input_tokens=tokens)


async def reported(share: Any) -> None:
    hf.progress(share)


async def limited(given: Any) -> None:
    async with hf.timeout(given):
        pass


def anything(value: object) -> Any:
    """To a type checker, whatever is wanted."""
    return cast("Any", value)


MISTAKES: dict[str, tuple[Verb, str]] = {
    "receive a name": (
        lambda: hf.receive(anything("go")),
        "hf.receive() takes a Signal, or its name and type, like (\"approved\", bool); got 'go'.",
    ),
    "receive half a signal": (
        lambda: hf.receive(anything(("go",))),
        "hf.receive() takes a Signal, or its name and type, like (\"approved\", bool); got ('go',).",
    ),
    "ask a number": (lambda: hf.ask(anything(5)), "hf.ask() takes a text to ask; got 5."),
    "options of a text": (
        lambda: hf.ask("which?", options="ab"),
        "hf.ask(options=…) takes a list of them; got 'ab'.",
    ),
    "race numbers": (
        lambda: hf.race(anything(1), anything(2)),
        "hf.race() takes awaitables, like race(fetch(a), fetch(b)); got 1.",
    ),
    "get a number": (
        lambda: done(hf.get(anything(5))),
        "hf.get() takes a token or an id, which are texts; got 5.",
    ),
    "resume nothing": (
        lambda: hf.resume(anything(None)),
        "hf.get() takes a token or an id, which are texts; got None.",
    ),
    "send a number": (
        lambda: hf.get("other").send(anything(5), 1),
        "send() takes a Signal, or the name of one; got 5.",
    ),
    "usage of texts": (
        lambda: used("812"),
        "hf.usage() takes numbers; input_tokens= is '812'.",
    ),
    "progress of nothing": (
        lambda: reported(None),
        "hf.progress() takes numbers; done= is None.",
    ),
    "progress without an end": (
        lambda: reported(float("nan")),
        "hf.progress() takes numbers; done= is nan.",
    ),
    "timeout of a text": (
        lambda: limited("5"),
        "hf.timeout() takes seconds or a timedelta, from 0 to a hundred years; got '5'.",
    ),
}


@hf.agent
async def mistaken(which: str) -> str:
    try:
        await MISTAKES[which][0]()
    except UsageError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("which", MISTAKES)
def test_a_verb_says_what_it_takes(which: str, tmp_path: Path) -> None:
    assert hf.run(mistaken(which), url=str(tmp_path / "runs.db")) == MISTAKES[which][1]


@pytest.mark.parametrize("signals", ["go", ["go"], [5], 5], ids=repr)
def test_an_agent_says_what_its_signals_are(signals: Any) -> None:
    with pytest.raises(UsageError) as refused:
        hf.agent(signals=signals)(done)
    assert str(refused.value) == f'signals= takes signals, like [hf.Signal("approved", bool)]; got {signals!r}.'


def test_one_signal_need_not_be_in_a_list() -> None:
    agent = hf.agent(signals=anything(hf.Signal("go", str)))(done)
    assert list(agent.signals) == ["go"]
