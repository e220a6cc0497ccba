"""Signals: none lost, none taken twice, in order; whenever they are sent and whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import Clock
from holdfast.worker import endings
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.killed import live
from tests.waiting.scene import Scene
from tests.workers import asked, until

number = hf.Signal("number", int)
word = hf.Signal("word", str)


@hf.agent(signals=[number, word])
async def collects(count: int) -> list[int]:
    return [await hf.receive(number) for _ in range(count)]


@hf.agent
async def undeclared() -> int:
    return await hf.receive(("number", int))


def test_one_that_is_sent_before_anybody_waits_is_delivered(tmp_path: Path) -> None:
    may_wait = asyncio.Event()

    @hf.step
    async def busy() -> None:
        await may_wait.wait()

    @hf.agent(signals=[number])
    async def late() -> int:
        await busy()
        return await hf.receive(number)

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[late]) as app:
            run = await app.start(late())
            assert await run.send(number, 7)
            may_wait.set()
            assert await run.result(timeout=60) == 7

    asyncio.run(run())


def test_those_that_are_sent_before_any_worker_lives_are_delivered_in_order(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.collect(5), id="r")
            for n in range(5):
                assert await run.send("number", n)
            scene.worker()
            assert await run.result(timeout=60) == [0, 1, 2, 3, 4]
            assert scene.done("post") == [0, 1, 2, 3, 4]

    asyncio.run(run())


def test_those_that_are_sent_while_the_worker_is_down_are_delivered(scene: Scene) -> None:
    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.collect(3), id="r")
            with scene.working():
                await run.send("number", 1)
                await eventually(lambda: scene.done("post") == [1])
                await until(run, "waiting")
            await run.send("number", 2)
            with scene.working():
                await eventually(lambda: scene.done("post") == [1, 2])
            await run.send("number", 3)
            scene.worker()
            assert await run.result(timeout=60) == [1, 2, 3]
            assert scene.done("post") == [1, 2, 3]

    asyncio.run(run())


@pytest.mark.postgres
def test_one_that_comes_between_the_look_and_the_sleep_is_delivered_at_once(scene: Scene) -> None:
    """The process stands still after it has looked for mail and before it gives the run up."""

    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker(fault="park.before:stop@1", sweep_s=3600)  # nobody finds it later
            run = await app.start(agents.collect(1), id="r")
            await worker.wait_stopped()
            assert await run.send("number", 5)
            assert await run.status() == "running"
            worker.go_on()
            assert await run.result(timeout=60) == [5]

    asyncio.run(run())


def test_one_that_comes_right_after_the_run_was_given_up_wakes_it(scene: Scene) -> None:
    """Its former owner stands still and cannot hear the bell; whoever else works finds it by looking."""

    async def run() -> None:
        async with scene.client() as app:
            worker = scene.worker(fault="park.after:stop@1")
            run = await app.start(agents.collect(1), id="r")
            await worker.wait_stopped()
            assert await run.status() == "waiting"
            assert await run.send("number", 5)
            assert await run.status() == "queued"
            scene.worker()
            assert await run.result(timeout=60) == [5]
            worker.go_on()

    asyncio.run(run())


@pytest.mark.sqlite_alone("its bell is a file")
def test_one_is_delivered_when_the_bell_is_gone(scene: Scene) -> None:
    """Nobody is told of it; it is found by looking."""

    async def run() -> None:
        async with scene.client() as app:
            scene.worker()
            run = await app.start(agents.collect(2), id="r")
            await until(run, "waiting")
            bells = list(scene.folder.rglob("bell"))
            assert bells
            for bell in bells:
                bell.unlink()
            for value in (5, 6):
                assert await run.send("number", value)
            assert await run.result(timeout=60) == [5, 6]

    asyncio.run(run())


def interleavings(folder: Path, *, rounds: int, seed: int) -> None:
    """Runs that receive, do something else or sleep, and senders, in a random order: a counting oracle."""
    chance = random.Random(seed)

    @hf.step
    async def pause(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    @hf.agent(signals=[number])
    async def mixed(turns: list[int], patience: float | None) -> list[int]:
        got = []
        for each in turns:
            if each:
                await pause(each)
            try:
                got.append(await hf.receive(number, timeout=patience))
            except TimeoutError:
                got.append(await hf.receive(number))
        return got

    async def one(app: hf.Holdfast, n: int) -> None:
        count = chance.randint(1, 4)
        turns = [chance.choice((0, 0, 1, 5, 20)) for _ in range(count)]
        gaps = [chance.choice((0, 0, 0, 1, 3, 10, 40)) for _ in range(count)]
        run = await app.start(mixed(turns, chance.choice((None, None, 0.001, 5))), id=f"r{n}")
        for value, gap in enumerate(gaps):
            for _ in range(gap):
                await asyncio.sleep(0)
            assert await run.send(number, value, dedup=f"{value}")
            if chance.random() < 0.2:
                assert not await run.send(number, value, dedup=f"{value}")
            if chance.random() < 0.2:
                with pytest.raises(hf.ConflictingSend):
                    await run.send(number, 99, dedup=f"{value}")
        assert await run.result(timeout=60) == list(range(count)), f"seed {seed}, run {n}: {turns} {gaps}"

    async def run() -> None:
        async with hf.connect(str(folder / "s.db"), agents=[mixed], concurrency=1000) as app:
            for start in range(0, rounds, 100):
                await asyncio.gather(*(one(app, n) for n in range(start, min(start + 100, rounds))))

    asyncio.run(run())


def test_random_interleavings_of_sending_and_waiting_lose_nothing(tmp_path: Path) -> None:
    interleavings(tmp_path, rounds=250, seed=1)


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_ten_thousand_random_interleavings_lose_nothing(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    interleavings(tmp_path, rounds=10_000, seed=seed)


def test_one_that_is_sent_twice_is_delivered_once(tmp_path: Path) -> None:

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[collects]) as app, Clock(app) as clock:
            run = await app.start(collects(3))
            assert await run.send(number, 1, dedup="a")
            assert not await run.send(number, 1, dedup="a")
            assert await run.send(number, 2, dedup="b")
            await clock.settle()
            assert not await run.send(number, 1, dedup="a"), "it has been received meanwhile, and is known all the same"
            assert await run.send(number, 3)
            assert await run.result(timeout=60) == [1, 2, 3]

    asyncio.run(run())


def test_an_acknowledgement_that_was_lost_can_be_asked_for_again(scene: Scene) -> None:
    """The sender dies after its signal was stored and before it heard of it; its retry changes nothing."""

    async def run() -> None:
        async with scene.client() as app:
            receiver = await app.start(agents.collect(2), id="r")
            sender = scene.worker(fault="send.after_commit:kill@1")
            talking = await app.start(agents.talks("r", 2), id="s")
            assert await sender.wait_dead() == -9
            scene.worker()
            assert await receiver.result(timeout=60) == [0, 1]
            assert len(await talking.result(timeout=60)) == 2
            mails = [m for m in await app._store.mail(receiver.id, after=0) if m.kind == "signal"]
            assert len(mails) == 2

    asyncio.run(run())


def test_who_waits_longest_gets_it(tmp_path: Path) -> None:
    """Two receivers, first come, first served."""

    @hf.agent(signals=[number])
    async def two() -> list[tuple[str, int]]:
        async def receiver(name: str) -> tuple[str, int]:
            return name, await hf.receive(number)

        return list(await asyncio.gather(receiver("first"), receiver("second")))

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[two]) as app, Clock(app) as clock:
            run = await app.start(two())
            await clock.settle()
            await run.send(number, 1)
            await clock.settle()
            assert await run.status() == "waiting"
            await run.send(number, 2)
            assert await run.result(timeout=60) == [("first", 1), ("second", 2)]
            early = await app.start(two(), id="early", paused=True)
            await early.send(number, 1)
            await early.send(number, 2)
            await early.resume()
            assert await early.result(timeout=60) == [("first", 1), ("second", 2)]

    asyncio.run(run())


# refused to the sender


def test_the_wrong_shape_is_refused_to_the_sender_and_not_delivered(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    async def run() -> None:
        async with hf.connect(url, agents=[collects]) as app, hf.connect(url) as client:
            run = await app.start(collects(1))
            for sender in (run, client.get(run.id)):
                for bad in ("seven", None, 1.5, [1], {"n": 1}, True):
                    with pytest.raises(hf.UsageError, match="does not fit signal 'number'"):
                        await sender.send("number", bad)
                with pytest.raises(hf.UsageError, match="takes no signal 'nombre'; it takes number, word"):
                    await sender.send("nombre", 1)
            assert await app._store.mail(run.id, after=0) == []
            await client.get(run.id).send("number", 7)
            assert await run.result(timeout=60) == [7]

    asyncio.run(run())


def test_an_agent_that_declares_nothing_takes_what_fits_and_notes_what_does_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[undeclared]) as app:
            run = await app.start(undeclared())
            await run.send("number", "seven")
            await run.send("number", 7)
            assert await run.result(timeout=60) == 7
            notes = [item for item in await run.history() if item.name == "refused"]
            assert len(notes) == 1

    asyncio.run(run())


def test_a_run_that_has_ended_or_does_not_exist_takes_nothing(tmp_path: Path) -> None:

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[collects]) as app:
            run = await app.start(collects(0))
            await run.result(timeout=60)
            with pytest.raises(hf.RunFinished, match="is done"):
                await run.send(number, 1)
            cancelled = await app.start(collects(1))
            await cancelled.cancel(timeout=60)
            with pytest.raises(hf.RunFinished, match="is cancelled"):
                await cancelled.send(number, 1)
            with pytest.raises(hf.RunNotFound):
                await app.get("r_nobody").send(number, 1)

    asyncio.run(run())


def test_what_was_sent_and_never_received_is_told_at_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[collects]) as app:
            run = await app.start(collects(1), paused=True)
            for value in (1, 2):
                await run.send(number, value)
            await run.send(word, "hello")
            await run.resume()
            assert await run.result(timeout=60) == [1]
            unread = [item for item in await run.history() if item.name == "unread"]
            assert len(unread) == 1
            assert "number" in unread[0].detail
            assert "word" in unread[0].detail

    asyncio.run(run())


# a wait that is given up


def test_a_receive_that_loses_a_race_leaves_its_message(tmp_path: Path) -> None:

    @hf.agent(signals=[number, word])
    async def races() -> list[Any]:
        async def a_number() -> int:
            return await hf.receive(number)

        async def a_word() -> str:
            return await hf.receive(word)

        won = await hf.race(a_number(), a_word())
        return [won, await hf.receive(number)]

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[races]) as app, Clock(app) as clock:
            run = await app.start(races())
            await clock.settle()
            await run.send(word, "w")
            await clock.settle()
            await run.send(number, 1)
            assert await run.result(timeout=60) == ["w", 1]

    asyncio.run(run())


@pytest.mark.parametrize("is_early", [True, False])
def test_both_messages_of_a_race_are_delivered_one_after_the_other(is_early: bool, tmp_path: Path) -> None:
    """Both are there before the race begins, or come together."""

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[agents.chooses]) as app:
            run = await app.start(agents.chooses(2), paused=is_early)
            if not is_early:
                await until(run, "waiting")
            await asyncio.gather(run.send(number, 1), run.send(word, "w"))
            await run.resume()
            assert sorted(await run.result(timeout=60)) == ["number 1", "word w"]

    asyncio.run(run())


def test_both_messages_of_a_race_are_delivered_whatever_crashes(tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        run = await app.start(agents.chooses(4), id="r", paused=True)
        for n in range(2):
            await run.send("number", n)
            await run.send("word", f"{n}")
        await run.resume()
        return sorted(await run.result(timeout=60))

    lives = live(tmp_path, forkserver, drive, only=("append.*",), most=4)
    assert lives.end == ["number 0", "number 1", "word 0", "word 1"]


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_message_and_a_timeout_that_were_both_decided_leave_the_message(commit: int, scene: Scene) -> None:
    """It came in time, nobody worked, and whoever finds both of them dies after a commit."""

    async def run() -> None:
        async with scene.client() as app:
            run = await app.start(agents.second_chance(), id="r")
            with scene.working():
                await until(run, "waiting")
            await run.send("number", 7)
            scene.worker(shift_s=61, fault=f"append.after_commit:kill@{commit}")
            scene.worker(shift_s=61)
            assert (await run.result(timeout=60))[1] == 7

    asyncio.run(run())


def test_a_message_that_comes_after_the_timeout_is_for_the_next_receive(tmp_path: Path) -> None:

    @hf.agent(signals=[number])
    async def twice() -> list[int]:
        got = []
        try:
            got.append(await hf.receive(number, timeout=60))
        except TimeoutError:
            got.append(-1)
        try:
            async with hf.timeout(60):
                got.append(await hf.receive(number))
        except TimeoutError:
            got.append(-2)
        return [*got, await hf.receive(number)]

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[twice]) as app, Clock(app) as clock:
            run = await app.start(twice())
            await clock.skip(seconds=61)
            await clock.skip(seconds=61)
            await run.send(number, 5)
            assert await run.result(timeout=60) == [-1, -2, 5]

            late = await app.start(twice(), id="late")
            await clock.settle()
            await late.pause()
            await clock.skip(seconds=61)
            await late.send(number, 6)  # after the due time of the first, which did not expire: the run was paused
            await late.resume()
            await clock.skip(seconds=1)
            assert await late.status() == "waiting"
            await late.send(number, 7)
            assert await late.result(timeout=60) == [-1, 6, 7]

    asyncio.run(run())


def test_a_timeout_and_a_message_at_the_same_time_have_one_outcome(tmp_path: Path) -> None:
    """Sent at the due time, give or take a millisecond; taken or left, never both and never neither."""

    @hf.agent(signals=[number])
    async def impatient(limit: float) -> list[int]:
        got = []
        try:
            got.append(await hf.receive(number, timeout=limit))
        except TimeoutError:
            got += [-1, await hf.receive(number)]
        return got

    chance = random.Random(3)
    ends: Counter[tuple[int, ...]] = Counter()

    async def one(app: hf.Holdfast, limit: float, after: float | None) -> None:
        run = await app.start(impatient(limit))
        if after is None:  # when it has given up, and waits without a limit
            await until(run, "waiting")
        else:
            await asyncio.sleep(after)
        await run.send(number, 7)
        ends[tuple(await run.result(timeout=60))] += 1

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[impatient]) as app:
            for _ in range(15):
                await asyncio.gather(*(one(app, 0.03, 0.03 + chance.uniform(-0.004, 0.004)) for _ in range(10)))
            await asyncio.gather(*(one(app, limit, after) for limit, after in [(60, 0), (0.01, None)] * 3))

    asyncio.run(run())
    assert set(ends) == {(7,), (-1, 7)}, f"only one order occurred: {ends}"


def test_a_signal_to_a_paused_run_is_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[collects]) as app, Clock(app) as clock:
            run = await app.start(collects(2))
            await clock.settle()
            await run.pause()
            await run.send(number, 1)
            await run.send(number, 2)
            await clock.settle()
            assert await run.status() == "paused"
            await run.resume()
            assert await run.result(timeout=60) == [1, 2]

    asyncio.run(run())


@pytest.mark.postgres
def test_signals_survive_a_kill_at_any_point(tmp_path: Path, forkserver: ForkServer) -> None:
    """Every one is received once and in order, whatever dies."""

    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        run = await app.start(agents.collect(3), id="r")
        await run.send("number", 0)
        await eventually(lambda: 0 in scene.done("post"))
        await until(run, "waiting")
        await run.send("number", 1)
        await run.send("number", 2)
        return await run.result(timeout=60), scene.done("post")

    lives = live(tmp_path, forkserver, drive, only=("append.after_commit", "park.*", "claim.after_commit"), most=4)
    assert lives.end == ([0, 1, 2], [0, 1, 2])


async def send_much(scene: Scene, app: hf.Holdfast) -> object:
    run = await app.start(agents.reads(2), id="r")
    for n in range(2):
        await run.send("word", "word " * 4000, dedup=f"{n}")
        (question,) = await asked(run)
        assert len(await run.interrupt(question.draft, timeout=60)) == 40_000
        await question.answer(question.draft + "!")
        await eventually(lambda: len(scene.done("post")) > n)  # noqa: B023 - it is awaited here
    return await run.result(timeout=60), scene.done("post")


def test_large_values_survive_a_kill_as_well(tmp_path: Path, forkserver: ForkServer) -> None:
    lives = live(tmp_path, forkserver, send_much, only=("append.after_commit", "interrupt.before"), most=3)
    assert lives.end == (80_002, [0, 1])


@pytest.mark.prove
def test_large_values_survive_a_kill_at_every_point(tmp_path: Path, forkserver: ForkServer) -> None:
    print(live(tmp_path, forkserver, send_much))


def test_a_run_that_is_given_up_in_a_block_with_clean_up_is_woken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving memory is no reason for its clean-up to run, or to be waited for."""
    monkeypatch.setattr(endings, "_TEAR_DOWN_S", 3600)  # who waits for it, waits too long
    cleaned: list[int] = []

    @hf.step
    async def clean() -> None:
        cleaned.append(1)

    @hf.agent(signals=[number])
    async def careful() -> int:
        try:
            return await hf.receive(number)
        finally:
            await clean()

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[careful]) as app:
            run = await app.start(careful())
            await until(run, "waiting")
            assert cleaned == []
            await run.send(number, 5)
            assert await run.result(timeout=60) == 5
            assert cleaned == [1]

    asyncio.run(run())


@pytest.mark.prove
@pytest.mark.parametrize("what", ["collect", "chooses"])
def test_signals_survive_a_kill_at_every_point(what: str, tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        call: hf.Call[Any] = agents.collect(4) if what == "collect" else agents.chooses(4)
        run = await app.start(call, id="r")
        for n in range(2):
            await until(run, "waiting")
            await run.send("number", n)
            if what == "chooses":
                await run.send("word", f"{n}")
        if what == "collect":
            await asyncio.gather(run.send("number", 2), run.send("number", 3))
        return sorted(map(str, await run.result(timeout=60))), sorted(scene.done("post"))

    print(live(tmp_path, forkserver, drive))


# events


def test_an_event_reaches_every_run_that_declares_it_once(tmp_path: Path) -> None:
    @hf.agent(signals=[word])
    async def deaf() -> str:
        return await hf.receive(word)

    async def run() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[collects, deaf]) as app, Clock(app) as clock:
            runs = [await app.start(collects(2)) for _ in range(12)]
            other = await app.start(deaf())
            first = await app.emit("number", 1, dedup="one")
            assert await app.emit("number", 1, dedup="one") == first
            await clock.settle()
            assert {await run.status() for run in runs} == {"waiting"}
            assert await app.emit("number", 2) != first
            assert [await run.result(timeout=60) for run in runs] == [[1, 2]] * 12
            await clock.settle()
            assert await other.status() == "waiting"
            await other.cancel(timeout=60)

    asyncio.run(run())
