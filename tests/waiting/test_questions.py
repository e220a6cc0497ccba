"""Questions to people: every form, one decision each, whoever is first, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

import holdfast as hf
from holdfast.testing import Clock
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.killed import live
from tests.waiting.scene import Scene
from tests.workers import asked, noted, until


class Where(Enum):
    staging = "staging"
    production = "production"


class Order(BaseModel):
    title: str
    pages: int = Field(gt=0)
    is_urgent: bool = False


@dataclass
class Address:
    street: str
    number: int


async def outcome(call: hf.Call[Any], folder: Path, decide: Any) -> Any:
    """Ask, have it decided, and return what the agent made of it."""
    async with hf.connect(str(folder / "s.db"), agents=[call.agent]) as app:
        run = await app.start(call)
        (question,) = await asked(run)
        await decide(question)
        return await run.result(timeout=60)


# forms


@hf.agent
async def yesno() -> bool:
    return await hf.ask("Go on?", show={"page": 3})


@pytest.mark.parametrize("said", [True, False])
def test_yes_or_no(said: bool, tmp_path: Path) -> None:
    async def decide(question: hf.Question) -> None:
        assert (question.kind, question.prompt, question.show) == ("yesno", "Go on?", {"page": 3})
        for bad in ("yes", 1, None):
            with pytest.raises(hf.UsageError, match="does not fit"):
                await question.answer(bad)
        await question.answer(said)

    assert asyncio.run(outcome(yesno(), tmp_path, decide)) is said


@hf.agent
async def option() -> str:
    return await hf.ask("Where to?", options=["staging", "production"])


@hf.agent
async def enum_option() -> Where:
    return await hf.ask("Where to?", options=list(Where))


@hf.agent
async def number_option() -> int:
    return await hf.ask("How many?", options=[1, 2, 3])


@pytest.mark.parametrize(
    ("call", "said", "got"),
    [
        (option(), "production", "production"),
        (enum_option(), "production", Where.production),
        (number_option(), "2", 2),
    ],
    ids=["text", "enum", "numbers"],
)
def test_one_of_several(call: hf.Call[Any], said: str, got: Any, tmp_path: Path) -> None:
    async def decide(question: hf.Question) -> None:
        assert question.kind == "options"
        assert said in (question.options or [])
        with pytest.raises(hf.UsageError, match="does not fit"):
            await question.answer("the moon")
        await question.answer(said)

    assert asyncio.run(outcome(call, tmp_path, decide)) == got


@hf.agent
async def model() -> Order:
    return await hf.ask("What shall I order?", Order)


@hf.agent
async def plain_class() -> Address:
    return await hf.ask("Where do you live?", Address)


@pytest.mark.parametrize(
    ("call", "bad", "said", "got"),
    [
        (model(), {"title": "x", "pages": 0}, {"title": "x", "pages": 3}, Order(title="x", pages=3)),
        (
            model(),
            {"title": 7, "pages": 1},
            Order(title="y", pages=1, is_urgent=True),
            Order(title="y", pages=1, is_urgent=True),
        ),
        (plain_class(), {"street": "Ring"}, {"street": "Ring", "number": 4}, Address("Ring", 4)),
        (plain_class(), {"street": "Ring", "number": "4"}, Address("Ring", 4), Address("Ring", 4)),
    ],
    ids=["model", "model, as itself", "dataclass", "dataclass, as itself"],
)
def test_a_form(call: hf.Call[Any], bad: Any, said: Any, got: Any, tmp_path: Path) -> None:
    async def decide(question: hf.Question) -> None:
        assert question.kind == "form"
        assert question.schema is not None
        with pytest.raises(hf.UsageError, match="does not fit"):
            await question.answer(bad)
        await question.answer(said)

    assert asyncio.run(outcome(call, tmp_path, decide)) == got


@hf.agent
async def draft() -> str:
    return await hf.ask("Send this?", draft="Dear all,")


@hf.agent
async def model_draft() -> Order:
    return await hf.ask("Order this?", draft=Order(title="tides", pages=3))


def test_a_draft_comes_back_as_it_was_edited(tmp_path: Path) -> None:
    async def edit(question: hf.Question) -> None:
        assert (question.kind, question.draft) == ("draft", "Dear all,")
        with pytest.raises(hf.UsageError, match="does not fit"):
            await question.answer(7)
        await question.answer(question.draft + " hello")

    assert asyncio.run(outcome(draft(), tmp_path, edit)) == "Dear all, hello"

    async def edit_model(question: hf.Question) -> None:
        await question.answer({**question.draft, "pages": 4})

    assert asyncio.run(outcome(model_draft(), tmp_path, edit_model)) == Order(title="tides", pages=4)


@hf.agent
async def approval() -> hf.Approval:
    return await hf.ask("Publish?", hf.Approval)


@pytest.mark.parametrize("ok", [True, False])
def test_an_approval_says_who_when_and_why(ok: bool, tmp_path: Path) -> None:
    async def decide(question: hf.Question) -> None:
        assert question.kind == "approval"
        await question.answer(ok, by="ada", note="because")

    before = datetime.now(UTC)
    said = asyncio.run(outcome(approval(), tmp_path, decide))
    assert (said.ok, bool(said), said.by, said.note) == (ok, ok, "ada", "because")
    assert before <= said.at <= datetime.now(UTC)


@hf.agent
async def careful() -> str:
    try:
        return str(await hf.ask("Go on?"))
    except hf.Declined as error:
        return f"declined: {error}"


def test_to_decline_is_an_exception_for_the_agent(tmp_path: Path) -> None:
    async def decide(question: hf.Question) -> None:
        await question.decline(by="ada", note="ask legal")

    assert asyncio.run(outcome(careful(), tmp_path, decide)) == "declined: ada declined 'Go on?': ask legal"


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": " "},
        {"prompt": "?", "options": []},
        {"prompt": "?", "options": ["a", "a"]},
        {"prompt": "?", "options": ["a"], "draft": "b"},
    ],
    ids=str,
)
def test_a_question_that_makes_no_sense_is_refused_to_the_code(given: dict[str, Any], tmp_path: Path) -> None:
    @hf.agent
    async def agent() -> str:
        try:
            await hf.ask(**given)
        except hf.UsageError as error:
            return str(error)
        return "asked"

    async def run() -> str:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agent]) as app:
            return await (await app.start(agent())).result(timeout=60)

    assert "hf.ask(" in asyncio.run(run())


# one decision


@hf.agent
async def hurried() -> str:
    try:
        return str(await hf.ask("Still there?", timeout=timedelta(days=2)))
    except TimeoutError as error:
        return f"late: {error}"


def test_a_late_answer_is_told_that_the_question_has_expired(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[hurried]) as app, Clock(app) as clock:
            run = await app.start(hurried())
            await clock.skip(days=1)
            (question,) = await run.questions()
            await clock.skip(days=2)
            assert "nobody answered" in await run.result(timeout=60)
            with pytest.raises(hf.AlreadyDecided, match="expired") as caught:
                await question.answer(True)
            assert caught.value.state == "expired"
            with pytest.raises(hf.AlreadyDecided, match="expired"):
                await question.decline()
            (after,) = await run.questions(only_open=False)
            assert after.state == "expired"
            assert await run.questions() == []

    asyncio.run(run())


def test_the_second_decision_is_told_who_made_the_first(tmp_path: Path) -> None:

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[careful]) as app:
            run = await app.start(careful())
            (question,) = await asked(run)
            await question.answer(True, by="ada")
            for decide in (
                question.answer(False, by="bob"),
                question.decline(by="bob"),
                question.answer(True, by="ada"),
            ):
                with pytest.raises(hf.AlreadyDecided, match="answered by ada") as caught:
                    await decide
                assert (caught.value.state, caught.value.by) == ("answered", "ada")
            assert await run.result(timeout=60) == "True"

    asyncio.run(run())


def test_of_approve_and_reject_at_once_exactly_one_wins(tmp_path: Path) -> None:
    """Two hundred times, from two connections."""
    url = str(tmp_path / "s.db")
    chance = random.Random(5)

    async def one(app: hf.Holdfast, other: hf.Holdfast, n: int) -> str:
        run = await app.start(careful(), id=f"r{n}")
        (question,) = await asked(run)
        (same,) = await other.get(run.id).questions()
        deciders = {"ada": question.answer(True, by="ada"), "bob": same.decline(by="bob")}
        names = sorted(deciders, key=lambda _: chance.random())
        done = dict(
            zip(names, await asyncio.gather(*(deciders[n] for n in names), return_exceptions=True), strict=True)
        )
        (winner,) = (name for name, error in done.items() if error is None)
        (loser,) = (name for name, error in done.items() if error is not None)
        refused = done[loser]
        assert isinstance(refused, hf.AlreadyDecided), refused
        assert refused.by == winner
        assert f"by {winner}" in str(refused)
        assert (await run.result(timeout=60) == "True") == (winner == "ada")
        (after,) = await run.questions(only_open=False)
        assert after.decided_by == winner
        return winner

    async def run() -> None:
        async with hf.connect(url, agents=[careful]) as app, hf.connect(url) as other:
            wins: Counter[str] = Counter()
            for start in range(0, 200, 20):
                wins.update(await asyncio.gather(*(one(app, other, n) for n in range(start, start + 20))))
        assert sum(wins.values()) == 200
        assert len(wins) == 2, wins

    asyncio.run(run())


def test_an_answer_at_the_due_time_counts_or_is_refused(tmp_path: Path) -> None:
    """Two hundred times, at the due time give or take a millisecond, and some surely before and after it."""

    @hf.agent
    async def quick(limit: float) -> str:
        try:
            return str(await hf.ask("Now?", timeout=limit))
        except TimeoutError:
            return "late"

    chance = random.Random(7)
    ends: Counter[str] = Counter()

    async def answered(question: hf.Question) -> str:
        try:
            await question.answer(True)
        except hf.AlreadyDecided as error:
            return str(error.state)
        return "answered"

    async def one(app: hf.Holdfast, limit: float, off: float | None) -> None:
        run = await app.start(quick(limit))
        (question,) = await asked(run, only_open=False)
        assert question.due_at is not None
        if off is None:
            await until(run, "done")
        else:
            await asyncio.sleep(max(0, (question.due_at - datetime.now(UTC)).total_seconds() + off))
        told = await answered(question)
        assert await run.result(timeout=60) == {"answered": "True", "expired": "late"}[told]
        ends[told] += 1

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[quick]) as app:
            for _ in range(20):
                await asyncio.gather(*(one(app, 0.05, chance.uniform(-0.001, 0.001)) for _ in range(10)))
            await asyncio.gather(*(one(app, limit, off) for limit, off in [(600, -600), (0.05, None)] * 3))

    asyncio.run(run())
    assert sum(ends.values()) == 206
    assert set(ends) == {"answered", "expired"}, f"only one order occurred: {ends}"


@pytest.mark.postgres
def test_an_answer_after_the_due_time_while_nobody_works_counts_or_is_refused(scene: Scene) -> None:
    """Whatever the person is told is what the agent gets."""

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.brief(0.3), id="r")
            with scene.working():
                (question,) = await asked(run, only_open=False)  # it is late already where the machine is slow
            due_at = question.due_at
            assert due_at is not None
            await eventually(lambda: datetime.now(UTC) > due_at)
            try:
                await question.answer(True)
                expected = "True"
            except hf.AlreadyDecided:
                expected = "late"
            scene.worker()
            assert await run.result(timeout=60) == expected
            (after,) = await run.questions(only_open=False)
            assert after.state == ("answered" if expected == "True" else "expired")

    asyncio.run(run())


# several, and again and again


def test_several_can_be_open_at_once_and_are_answered_in_any_order(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.several(), id="r")
            with scene.working():
                questions = {q.prompt: q for q in await asked(run, 3)}
                await until(run, "waiting")
                assert len({q.id for q in questions.values()}) == 3
                await questions["Question 2?"].answer(False, by="ada")
                await eventually(lambda: scene.done("post") == [2])
            with scene.working():
                await questions["Question 0?"].answer(True, by="bob")
                await eventually(lambda: scene.done("post") == [2, 0])
                await questions["Question 1?"].answer(True, by="cyd")
                assert await run.result(timeout=60) == ["0 True bob", "1 True cyd", "2 False ada"]
            assert scene.done("post") == [2, 0, 1]

    asyncio.run(run())


async def answer_rounds(scene: Scene, app: hf.Holdfast, rounds: int) -> object:
    run = await app.start(agents.review(rounds), id="r")
    seen: dict[str, str] = {}
    while len(seen) < rounds:
        for question in await asked(run):
            if question.id not in seen:
                seen[question.id] = question.prompt
                await question.answer(f"{question.draft}+")
        await asyncio.sleep(0.005)
    result = await run.result(timeout=60)
    rings = scene.done("ring")
    assert sorted(rings) == sorted(seen), "each is told of once"
    return result, scene.done("post"), len(seen)


def test_five_rounds_of_review_with_a_crash_in_each(scene: Scene) -> None:
    """Earlier answers are replayed, effects are not repeated, and each question has an id of its own."""

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.review(5), id="r")
            ids: list[str] = []
            for n in range(5):
                with scene.working():
                    (question,) = await asked(run)
                    assert question.prompt.startswith(f"Round {n}:")
                    assert question.draft == "draft" + "+" * n
                    ids.append(question.id)
                    await until(run, "waiting")
                await question.answer(f"{question.draft}+")
            scene.worker()
            assert await run.result(timeout=60) == ["draft" + "+" * (n + 1) for n in range(5)]
            assert scene.done("post") == [0, 1, 2, 3, 4]
            assert scene.done("ring") == ids
            assert len(set(ids)) == 5

    asyncio.run(run())


def test_review_survives_a_kill_at_any_point(tmp_path: Path, forkserver: ForkServer) -> None:
    """`notify=` tells of each question once."""

    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        return await answer_rounds(scene, app, 2)

    only = ("question.after_commit", "effect.after_intent@1", "effect.after_body@1")
    lives = live(tmp_path, forkserver, drive, only=only)
    assert lives.end == (["draft+", "draft++"], [0, 1], 2)


@pytest.mark.prove
def test_review_survives_a_kill_at_every_point(tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        return await answer_rounds(scene, app, 3)

    print(live(tmp_path, forkserver, drive))


# what is shown, and questions that nobody waits for


def test_what_was_seen_is_what_is_decided(scene: Scene) -> None:
    """The run is resumed by a process that shows something else: the answer to what was shown before is refused."""

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.shows(), id="r")
            with scene.working(env={"TEXT": "pay 10"}):
                (seen,) = await asked(run)
                await until(run, "waiting")
            await run.pause()
            await run.send("wake", 1)
            await run.resume()
            with scene.working(env={"TEXT": "pay 1000"}):
                await noted(run, "unstable")
                (now,) = await asked(run)
                async with asyncio.timeout(60):
                    while now.show == seen.show:
                        (now,) = await asked(run)
                with pytest.raises(hf.QuestionChanged, match="nothing was decided"):
                    await seen.answer(True)
                with pytest.raises(hf.QuestionChanged):
                    await seen.decline()
                assert (now.show, now.id) == ("pay 1000", seen.id)
                await now.answer(True)
                assert await run.result(timeout=60) is True

    asyncio.run(run())


def test_changed_code_that_asks_something_else_does_not_leave_the_old_question_open(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    @hf.agent(name="asks", version="1")
    async def before() -> bool:
        return await hf.ask("Pay 10?")

    @hf.agent(name="asks", version="2")
    async def after() -> bool:
        return await hf.ask("Pay 1000?")

    async def run() -> None:
        async with hf.connect(url, agents=[before]) as app:
            run = await app.start(before(), id="r")
            (seen,) = await asked(run)
            await until(run, "waiting")
            await run.pause()
            await run.send("wake", 1)
        async with hf.connect(url, agents=[after]) as app:
            run = app.get("r")
            await run.resume()
            async with asyncio.timeout(60):
                while "Pay 1000?" not in {q.prompt for q in await run.questions(only_open=False)}:
                    await until(run, "waiting")
            await until(run, "waiting")
            assert [q.prompt for q in await run.questions()] == ["Pay 1000?"]
            old = next(q for q in await run.questions(only_open=False) if q.id == seen.id)
            with pytest.raises((hf.AlreadyDecided, hf.QuestionChanged)):
                await old.answer(True)
            await (await run.questions())[0].answer(False)
            assert await run.result(timeout=60) is False

    asyncio.run(run())


def test_a_question_is_withdrawn_when_the_code_stops_waiting(tmp_path: Path) -> None:
    @hf.agent
    async def impatient() -> str:
        async def person() -> str:
            return str(await hf.ask("Well?"))

        async def signal() -> str:
            return await hf.receive(("word", str))

        won = await hf.race(person(), signal())
        try:
            async with hf.timeout(3600):
                await hf.ask("And now?")
        except TimeoutError:
            pass
        return won

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[impatient]) as app, Clock(app) as clock:
            run = await app.start(impatient())
            (question,) = await asked(run)
            await run.send("word", "mine")
            await clock.skip(hours=2)
            assert await run.result(timeout=60) == "mine"
            assert [q.state for q in await run.questions(only_open=False)] == ["withdrawn", "withdrawn"]
            with pytest.raises(hf.AlreadyDecided, match="withdrawn"):
                await question.answer(True)

    asyncio.run(run())


@pytest.mark.parametrize("how", ["parked", "running", "killed"])
def test_a_question_is_withdrawn_when_its_run_is_cancelled(how: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[yesno]) as app:
            run = await app.start(yesno())
            (question,) = await asked(run)
            if how == "parked":
                await until(run, "waiting")
            assert await run.cancel(kill=how == "killed") == "cancelled"
            assert [q.state for q in await run.questions(only_open=False)] == ["withdrawn"]
            with pytest.raises(hf.AlreadyDecided, match="withdrawn"):
                await question.answer(True)
            assert await app.questions() == []

    asyncio.run(run())


def test_a_question_is_found_by_a_part_of_its_id(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[yesno]) as app:
            runs = [await app.start(yesno()) for _ in range(3)]
            questions = [(await asked(run))[0] for run in runs]
            assert {q.id for q in await app.questions()} == {q.id for q in questions}
            for run, question in zip(runs, questions, strict=True):
                assert (await app.question(question.id)).run_id == run.id
                await (await app.question(question.id[:10])).answer(True)
                assert await run.result(timeout=60)
            with pytest.raises(hf.RunNotFound):
                await app.question("q_nothing")

    asyncio.run(run())
