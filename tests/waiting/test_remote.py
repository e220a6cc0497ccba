"""What runs do to other runs: durable calls, which the other side never sees twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing import Clock, assert_survives
from tests.forkserver import ForkServer
from tests.waiting import agents
from tests.waiting.killed import Drive, live
from tests.waiting.scene import Scene
from tests.workers import asked, until

ONLY = ("send.*", "effect.after_body", "event.*")


async def send(scene: Scene, app: hf.Holdfast) -> object:
    receiver = await app.start(agents.collect(3), id="receiver")
    sender = await app.start(agents.talks("receiver", 3), id="sender")
    result = await sender.result(timeout=60), await receiver.result(timeout=60)
    mails = [m for m in await app._store.mail(receiver.id, after=0) if m.kind == "signal"]
    return result, len(mails), scene.done("post")


async def emit(scene: Scene, app: hf.Holdfast) -> object:
    receivers = [await app.start(agents.collect(2), id=f"receiver{n}") for n in range(2)]
    for receiver in receivers:
        await until(receiver, "waiting")
    emitter = await app.start(agents.emits(), id="emitter")
    assert await emitter.result(timeout=60)
    got = [sorted(await receiver.result(timeout=60)) for receiver in receivers]
    mails = [len([m for m in await app._store.mail(r.id, after=0) if m.kind == "signal"]) for r in receivers]
    return got, mails


async def cancel(scene: Scene, app: hf.Holdfast) -> object:
    target = await app.start(agents.trip(1), id="target")
    await until(target, "waiting")
    canceller = await app.start(agents.cancels("target"), id="canceller")
    await canceller.result(timeout=60)
    await until(target, "cancelled")
    return await target.status(), list(dict.fromkeys(scene.done("unbook")))


async def answer(scene: Scene, app: hf.Holdfast) -> object:
    target = await app.start(agents.shows(), id="target")
    await asked(target)
    answerer = await app.start(agents.answers("target"), id="answerer")
    said = await answerer.result(timeout=60)
    result = await target.result(timeout=60)
    (question,) = await target.questions(only_open=False)
    assert said in ("answered", "decided by run answerer"), said
    return result, question.state, question.decided_by


DRIVES = {"send": send, "emit": emit, "cancel": cancel, "answer": answer}
ENDS = {
    "send": (([True] * 3, [0, 1, 2]), 3, [0, 1, 2]),
    "emit": ([[7, 8], [7, 8]], [2, 2]),
    "cancel": ("cancelled", ["hotel", "flight"]),
    "answer": (True, "answered", "run answerer"),
}


@pytest.mark.parametrize("what", DRIVES)
def test_what_a_run_does_to_others_happens_once_wherever_it_is_killed(
    what: str, tmp_path: Path, forkserver: ForkServer
) -> None:
    drive: Drive = DRIVES[what]
    lives = live(tmp_path, forkserver, drive, only=ONLY, most=2)
    assert lives.end == ENDS[what]


@pytest.mark.prove
@pytest.mark.parametrize("what", DRIVES)
def test_what_a_run_does_to_others_survives_a_kill_at_every_point(
    what: str, tmp_path: Path, forkserver: ForkServer
) -> None:
    print(live(tmp_path, forkserver, DRIVES[what]))


def test_a_run_that_talks_to_itself_survives_a_kill(tmp_path: Path, forkserver: ForkServer) -> None:
    async def drive(scene: Scene, app: hf.Holdfast) -> object:
        return await (await app.start(agents.talks_to_itself(), id="r")).result(timeout=60)

    lives = live(tmp_path, forkserver, drive, only=("send.after_commit", "effect.after_body"), most=3)
    assert lives.end == [[True, True], False, [-1, 1, 2, 3]]


@pytest.mark.prove
def test_a_run_that_talks_to_itself_survives_everything() -> None:
    print(assert_survives(agents.talks_to_itself(), rounds=30))


def test_a_replay_gets_the_recorded_answer_and_does_nothing_to_the_other(tmp_path: Path) -> None:
    """Refusals are recorded as well: a run that was told that the other has ended is told so again."""
    number = hf.Signal("number", int)

    @hf.agent(signals=[number])
    async def ends() -> int:
        return await hf.receive(number)

    @hf.agent
    async def meddles(other: str) -> list[str]:
        run = hf.get(other)
        said = [str(await run.send(number, 1))]
        await hf.sleep(3600)
        for act in (run.send(number, 2), hf.get("r_nobody").send(number, 1), run.send("nonsense", 1)):
            try:
                await act
            except (hf.RunFinished, hf.RunNotFound, hf.UsageError) as error:
                said.append(type(error).__name__)
        said.append(str(await run.cancel()))
        said.append(str(await run.pause()))
        await hf.receive(("go", bool))
        return said

    async def run() -> None:
        url = str(tmp_path / "s.db")
        async with hf.connect(url, agents=[ends, meddles]) as app, Clock(app) as clock:
            other = await app.start(ends(), id="other")
            run = await app.start(meddles("other"), id="r")
            assert await other.result(timeout=60) == 1
            await clock.skip(hours=2)
            assert await run.status() == "waiting"
        async with hf.connect(url, agents=[ends, meddles]) as app:
            run = app.get("r")
            await run.send("go", True)
            assert await run.result(timeout=60) == ["True", "RunFinished", "RunNotFound", "UsageError", "done", "done"]
            assert len(await app._store.mail("other", after=0)) == 1  # type: ignore[arg-type]

    asyncio.run(run())
