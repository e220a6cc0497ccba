"""Natural mistakes in what verbs are given: each is told what it takes, and what it got."""

from __future__ import annotations

import asyncio
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


@hf.agent
async def never_ends() -> None:
    await hf.receive(("go", bool))


@never_ends.on_interrupt
async def never_replies(message: object, main: hf.MainLine) -> None:
    await hf.receive(("reply", bool))


@pytest.mark.parametrize("decorator", [hf.step, hf.effect, hf.reducer])
@pytest.mark.parametrize("given", [3, "search"])
def test_a_decorator_that_is_given_no_function_says_what_it_takes(decorator: Any, given: object) -> None:
    with pytest.raises(UsageError) as caught:
        decorator(given)
    assert str(caught.value) == (
        f"A decorator of Holdfast takes a function, or options by their names: @hf.step(retries=3); got {given!r}."
    )


def test_tags_without_texts_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[never_ends]) as app:
            for verb in (lambda: app.start(never_ends(), tags=anything(["a"])), lambda: app.runs(tags=anything(["a"]))):
                with pytest.raises(UsageError) as caught:
                    await verb()
                assert str(caught.value) == "tags= takes names with their texts, like {'team': 'sales'}; got ['a']."
            assert await app.runs() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"agent": never_ends}, "agent= takes a text, the name of an agent; got <agent never_ends>."),
        ({"thread_id": 3}, "thread_id= takes a text; got 3."),
        ({"queue": 3}, "queue= takes a text; got 3."),
        ({"after": 3}, "after= takes a text; got 3."),
        ({"limit": "x"}, "limit= takes a number; got 'x'."),
        ({"limit": -1}, "limit= takes a number; got -1."),
        ({"tags": {"a": 1}}, "tags= takes texts of at most 200 printable characters; got 'a': 1."),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_filter_that_fits_no_run_is_refused_and_finds_not_just_nothing(tmp_path: Path, wrong: Any, says: str) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[never_ends]) as app:
            with pytest.raises(UsageError) as caught:
                await app.runs(**wrong)
            assert str(caught.value) == says

    asyncio.run(main())


def test_an_agent_that_is_not_called_is_told_to_be(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[never_ends]) as app:
            verbs: dict[str, Verb] = {
                "app.start()": lambda: app.start(anything(never_ends)),
                "app.schedule()": lambda: app.schedule("daily", anything(never_ends), cron="0 2 * * *"),
                "hf.start()": lambda: hf.start(anything(never_ends)),
                "hf.arun()": lambda: hf.arun(anything(never_ends)),
            }
            for verb, given in verbs.items():
                with pytest.raises(UsageError) as caught:
                    await given()
                assert str(caught.value) == (
                    f"{verb} takes a call of an agent, like `never_ends(…)`; got <agent never_ends>."
                )
            assert (await app.runs(), await app.schedules()) == ([], [])

    asyncio.run(main())


def test_an_agent_is_not_taken_for_its_name_or_for_a_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[never_ends]) as app:
            with pytest.raises(UsageError) as caught:
                await app.prune(older_than=1, agent=anything(never_ends))
            assert str(caught.value) == "agent= takes a text, the name of an agent; got <agent never_ends>."
            with pytest.raises(UsageError) as caught:
                await app.find(anything(never_ends))
            assert str(caught.value) == ("app.find() takes a token or an id, which are texts; got <agent never_ends>.")
            with pytest.raises(UsageError) as caught:
                await app.questions(limit=anything("x"))
            assert str(caught.value) == "limit= takes a number; got 'x'."

    asyncio.run(main())


def test_who_waits_in_vain_is_told_for_what_and_that_the_run_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[never_ends]) as app:
            run = await app.start(never_ends(), id="r")
            for verb, what in (
                (lambda: run.result(timeout=0.05), "did not come to its end"),
                (lambda: run.question(timeout=0.05), "asked nothing"),
                (lambda: run.interrupt("how far?", timeout=0.05), "did not reply to the interrupt"),
            ):
                with pytest.raises(TimeoutError) as caught:
                    await verb()
                said = f"Run r {what} within 0.05 s. It goes on, and can be waited for again."
                assert str(caught.value) == said
            await run.cancel()

    asyncio.run(main())


def test_a_verify_or_undo_that_could_not_be_called_is_refused_where_it_is_declared() -> None:
    @hf.effect
    async def pay(amount: int, *, to: str) -> str:
        return to

    async def short(amount: int) -> None: ...

    async def long(amount: int, more: str, *, to: str) -> None: ...

    async def any_of_them(*args: object, **kwargs: object) -> None: ...

    anything(pay).verify(any_of_them)
    anything(pay).undo(any_of_them)
    for declare, fn, said in (
        (anything(pay).verify, short, "@pay.verify: short takes (amount: 'int') -> 'None', and it is called with "),
        (anything(pay).verify, long, "@pay.verify: long takes (amount: 'int', more: 'str', *, to: 'str') -> 'None', "),
        (
            anything(pay).undo,
            short,
            "@pay.undo: short takes (amount: 'int') -> 'None', and it is called with (result, ",
        ),
    ):
        with pytest.raises(UsageError) as caught:
            declare(fn)
        assert str(caught.value).startswith(said)


def test_run_inside_a_run_says_to_await_the_call(tmp_path: Path) -> None:
    @hf.agent
    async def outer() -> None:
        hf.run(inner())

    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[outer]) as app:
            with pytest.raises(hf.RunFailed) as caught:
                await (await app.start(outer())).result()
            assert str(caught.value).partition("UsageError: ")[2] == (
                "hf.run() is for scripts, and this is inside a run: `await inner(…)` is part of it, and `await "
                "hf.start(inner(…))` starts a run of its own."
            )

    asyncio.run(main())


@hf.agent
async def inner(amount: int = 1) -> None: ...


def test_an_argument_that_does_not_fit_is_named_with_its_agent(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "runs.db", agents=[inner]) as app:
            with pytest.raises(hf.Unserialisable) as caught:
                await app.start(inner(anything("one")))
            assert str(caught.value) == "inner(…): argument amount cannot be stored: expected int, found str."
            assert caught.value.path == "amount"

    asyncio.run(main())
