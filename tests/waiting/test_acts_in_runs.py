"""What callers hold, used inside a run: a look, a durable call, or refused. A replay never acts again."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.handle.acts import InRun
from holdfast.model import Kind, RunFilter, RunId
from tests.eventually import eventually
from tests.runs.journal import records_of
from tests.scripts import python
from tests.workers import until

CLASSES = (hf.Run, hf.Question, hf.InDoubt, hf.Holdfast)
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
GO = ("go", bool)


class Here:
    """The app of this test, for code inside a run."""

    app: hf.Holdfast


@hf.agent
async def target() -> list[Any]:
    return [await hf.receive(("value", int)) for _ in range(9)]


@target.on_interrupt
async def interrupted(message: str) -> str:
    return f"heard {message}"


@hf.agent
async def turning() -> None:
    async for _ in hf.turns([0]):
        await hf.receive(("value", int))


@hf.agent
async def ends() -> str:
    return "over"


@hf.agent
async def fails() -> str:
    raise ValueError("no")


@hf.agent
async def asks() -> str:
    try:
        return f"told {await hf.ask('Well?')}"
    except hf.Declined:
        return "declined"


@hf.effect(settle=0)
async def post() -> str:
    raise ConnectionResetError("who knows")


@hf.agent
async def doubts() -> str:
    return await post()


@hf.agent
async def takes(event: int) -> int:
    return event


@hf.effect
async def note(text: str) -> str:
    return text


@hf.agent
async def actor(what: str) -> list[str]:
    """Does it, does something else after it, and is replayed."""
    said = await TRIES[what]()
    await note("went on")
    await hf.receive(GO)
    return [str(said), await note("replayed")]


AGENTS: list[hf.Agent[..., Any]] = [target, turning, ends, fails, asks, doubts, takes, actor]
Try = Callable[[], Awaitable[Any]]
TRIES: dict[str, Try] = {}


def a_try(name: str) -> Callable[[Try], Try]:
    def decorate(do: Try) -> Try:
        TRIES[name] = do
        return do

    return decorate


def plain(name: str, /, *args: Any, **kwargs: Any) -> None:
    """Try a method of a handle or of the app."""
    kind, _, method = name.partition(".")
    run_id = kwargs.pop("run_id", "target")

    async def do() -> Any:
        owner = hf.get(run_id) if kind == "Run" else Here.app
        return await getattr(owner, method)(*args, **kwargs)

    TRIES[name] = do


for method in ("info", "status", "history", "states", "receipts", "artifacts", "verify_journal"):
    plain(f"Run.{method}")
plain("Run.question")
plain("Run.fork", 1)
plain("Run.fork_plan", 1)
plain("Run.checkpoints", run_id="turning")
plain("Run.state", run_id="turning")
plain("Run.diff", 1, 1, run_id="turning")
plain("Run.in_doubt", run_id="doubts")
plain("Run.questions", run_id="asks")
plain("Run.result", run_id="ends")
plain("Run.pause")
plain("Run.resume", run_id="paused")
plain("Run.cancel")
plain("Run.send", "value", 5)
plain("Run.interrupt", "hello")
plain("Run.retry", run_id="fails")
plain("Holdfast.start", takes(1))
plain("Holdfast.resume", "paused")
plain("Holdfast.find", "target")
plain("Holdfast.runs")
plain("Holdfast.in_doubt")
plain("Holdfast.questions")
plain("Holdfast.question", "q_")
plain("Holdfast.pause_all", agent="target")
plain("Holdfast.resume_all")
plain("Holdfast.cancel_all", agent="target")
plain("Holdfast.workers")
plain("Holdfast.work")
plain("Holdfast.emit", "happened", 1)
plain("Holdfast.queue", "mine", concurrency=1)
plain("Holdfast.queues")
plain("Holdfast.pause_queue", "known")
plain("Holdfast.resume_queue", "known")
plain("Holdfast.schedule", "mine", takes(1), cron="0 2 * * *")
plain("Holdfast.schedules")
plain("Holdfast.pause_schedule", "known")
plain("Holdfast.resume_schedule", "known")
plain("Holdfast.fire_schedule", "known")
plain("Holdfast.backfill_schedule", "known", JANUARY, JANUARY + timedelta(days=2))
plain("Holdfast.remove_schedule", "known")
plain("Holdfast.on", "happened", takes, name="mine")
plain("Holdfast.triggers")
plain("Holdfast.refused_starts", "known")
plain("Holdfast.pause_trigger", "known")
plain("Holdfast.resume_trigger", "known")
plain("Holdfast.remove_trigger", "known")
plain("Holdfast.prune", older_than=timedelta(0), agent="ends")
plain("Holdfast.retain", "ends", keep=timedelta(days=1))
plain("Holdfast.retention")


@a_try("Question.answer")
async def _() -> None:
    for question in await hf.get("asks").questions():
        await question.answer(True)


@a_try("Question.decline")
async def _() -> None:
    for question in await hf.get("asks").questions():
        await question.decline()


@a_try("InDoubt.resolve")
async def _() -> None:
    for doubt in await hf.get("doubts").in_doubt():
        await doubt.resolve(hf.landed("posted"))


@a_try("Holdfast.__aenter__")
@a_try("Holdfast.__aexit__")
async def _() -> int:
    async with hf.connect(Here.app.url) as other:
        return len(await other.runs(agent="target"))


#: of what is durable: the run that is acted on, and what it is after that; None: it is looked at
ENDS: dict[str, tuple[str, str] | None] = {
    "Run.result": None,
    "Run.in_doubt": None,
    "Run.questions": None,
    "Run.pause": ("target", "paused"),
    "Run.resume": ("paused", "waiting"),
    "Run.cancel": ("target", "cancelled"),
    "Run.send": ("target", "waiting"),
    "Run.interrupt": ("target", "waiting"),
    "Question.answer": ("asks", "done"),
    "Question.decline": ("asks", "done"),
    "InDoubt.resolve": ("doubts", "done"),
}


#: what a person does then, who must not be overruled by a replay
OVERRULED = {
    "Run.pause": ("resume", "waiting"),
    "Run.resume": ("pause", "paused"),
    "Run.cancel": ("retry", "waiting"),
}


@a_try("Run.watch")
async def _watch() -> Any:
    async for info in hf.get("target").watch():
        return info


def declared() -> dict[str, InRun | None]:
    """What each public coroutine of a class says it is inside a run."""
    found: dict[str, InRun | None] = {}
    for cls in CLASSES:
        for name, member in inspect.getmembers(cls):
            is_manager = name in ("__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__")
            if name.startswith("_") and not is_manager:
                continue
            if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
                found[f"{cls.__name__}.{name}"] = getattr(member, "in_run", None)
    return found


def test_every_public_coroutine_says_what_it_is_inside_a_run_and_is_tried_here() -> None:
    found = declared()
    assert [name for name, what in found.items() if what is None] == []
    assert TRIES.keys() == found.keys()
    assert ENDS.keys() == {name for name, what in found.items() if what is InRun.durable}


def test_what_is_public_and_no_coroutine_has_no_effect() -> None:
    """A method that returns something to be awaited or entered would have to say what it is as well."""
    others = {
        f"{cls.__name__}.{name}"
        for cls in CLASSES
        for name, member in inspect.getmembers(cls, callable)
        if not name.startswith("_") and not (inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member))
    }
    handles = {"Holdfast.extension", "Holdfast.get", "Holdfast.thread"}  # what they give says itself what it is
    assert others == handles | {"Run.stream", "Holdfast.lifespan"}  # which reads; which opens an app for a server


async def snapshot(app: hf.Holdfast) -> list[Any]:
    """All that there is besides the run that acts."""
    store = app._store
    rows = [row for row in await store.runs(RunFilter(limit=1000)) if row.id != "actor"]
    seen: list[Any] = [(row.id, row.status, row.epoch, row.head_seq, row.mail, row.owner) for row in rows]
    seen += [(row.id, row.state, row.decided_by) for row in await store.questions(only_open=False)]
    for kind in ("agent", "event", "outbox", "queue", "retention", "schedule", "trigger"):
        seen += [(kind, each.name, each.revision) for each in await store.definitions(kind)]
    return [*seen, len(await store.workers())]


async def prepare(app: hf.Holdfast) -> None:
    """Something for each method to act on, all of it at rest."""
    await app.queue("known", concurrency=5)
    await app.schedule("known", takes(1), cron="0 2 1-3 1 *")
    await app.on("otherwise", takes, name="known")
    for call, run_id, status in (
        (target(), "target", "waiting"),
        (target(), "paused", "waiting"),
        (turning(), "turning", "waiting"),
        (ends(), "ends", "done"),
        (fails(), "fails", "failed"),
        (asks(), "asks", "waiting"),
        (doubts(), "doubts", "in_doubt"),
    ):
        await until(await app.start(call, id=run_id), status)
    await app.get("paused").pause()
    await until(app.get("paused"), "paused")


async def tried(url: str, what: str, after: Callable[[hf.Holdfast], Awaitable[None]]) -> tuple[bool, list[str]]:
    """Have a run do it, park, and be replayed; whether that changed something at first, and what the run returned."""
    async with hf.connect(url, agents=AGENTS) as Here.app:
        app = Here.app
        await prepare(app)
        before = await snapshot(app)
        run = await app.start(actor(what), id="actor")
        await until(run, "waiting")
        await after(app)
        acted = await snapshot(app)
        await run.send("go", True)
        result = await run.result(timeout=60)
        assert await snapshot(app) == acted, f"{what} acted again"
        claims = [r for r in await app._store.records(RunId("actor")) if r.kind == "claimed"]
        assert len(claims) == 2, "it was not replayed"
        return before != acted, result


async def nothing(app: hf.Holdfast) -> None: ...


@pytest.mark.parametrize("what", sorted(ENDS))
def test_a_durable_act_happens_once_however_often_it_is_replayed(what: str, tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    ends_as = ENDS[what]

    async def at_rest(app: hf.Holdfast) -> None:
        if ends_as is None:
            return
        run = app.get(ends_as[0])
        await until(run, ends_as[1])
        if what in OVERRULED:
            act, status = OVERRULED[what]
            await getattr(run, act)(by="eva", note="I know better")
            await until(run, status)
        if what in ("Run.send", "Run.interrupt"):

            async def has_read() -> bool:
                row = await run._row()
                return row.owner is None and row.head_seq > 6

            assert await eventually(has_read)

    has_acted, _ = asyncio.run(tried(url, what, at_rest))
    assert has_acted == (ends_as is not None)
    names = {record.name for record in records_of(url, "actor") if record.key}
    assert names - {"note", "hf:receive"}, "something is recorded of it"


REFUSED = sorted(name for name, what in declared().items() if what is InRun.refused)
LOOKS = sorted(name for name, what in declared().items() if what is InRun.look)


@hf.agent
async def tries_all(names: list[str]) -> list[str]:
    said = []
    for name in names:
        try:
            await TRIES[name]()
            said.append(f"{name} did it")
        except hf.UsageError as error:
            said.append(str(error))
    await hf.receive(GO)
    return said


AGENTS.append(tries_all)


@pytest.mark.parametrize("names", [REFUSED, LOOKS], ids=["refused", "looks"])
def test_what_is_refused_and_what_looks_changes_nothing(names: list[str], tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=AGENTS) as Here.app:
            app = Here.app
            await prepare(app)
            before = await snapshot(app)
            run = await app.start(tries_all(names), id="actor")
            await until(run, "waiting")
            assert await snapshot(app) == before
            await run.send("go", True)
            said = await run.result(timeout=60)
            assert await snapshot(app) == before
            for name, text in zip(names, said, strict=True):
                if names is LOOKS:
                    assert text == f"{name} did it"
                else:
                    assert text.startswith(f"{name}() was called inside a run, where each replay would repeat it; ")

    asyncio.run(go())


@hf.effect
async def in_a_body() -> list[str]:
    await Here.app.queue("made", concurrency=2)
    await Here.app.emit("happened", 1)
    return [queue.name for queue in await Here.app.queues()]


@hf.agent
async def acts_in_a_body() -> list[str]:
    made = await in_a_body()
    await hf.receive(GO)
    return made


@hf.agent
async def opens_a_worker() -> str:
    try:
        async with hf.connect(Here.app.url, agents=[takes]):
            return "opened"
    except hf.UsageError as error:
        return str(error)


@hf.agent
async def sends_within() -> str:
    try:
        await hf.get("target").send("value", 1, transaction=object())
        return "sent"
    except hf.UsageError as error:
        return str(error)


def test_in_the_body_of_an_effect_acts_are_plain(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[acts_in_a_body]) as Here.app:
            run = await Here.app.start(acts_in_a_body(), id="r")
            await until(run, "waiting")
            await run.send("go", True)
            assert "made" in await run.result(timeout=60)
            assert len(await Here.app._store.definitions("event")) == 1

    asyncio.run(go())


def test_a_run_opens_no_worker_and_sends_in_no_transaction_of_its_own(tmp_path: Path) -> None:
    async def go() -> None:
        agents = [target, opens_a_worker, sends_within]
        async with hf.connect(str(tmp_path / "s.db"), agents=agents) as Here.app:
            await Here.app.start(target(), id="target")
            opened = await (await Here.app.start(opens_a_worker())).result(timeout=60)
            assert "An app that executes runs was opened inside a run" in opened
            sent = await (await Here.app.start(sends_within())).result(timeout=60)
            assert "call it in the body of an effect" in sent

    asyncio.run(go())


CUT_OFF = """
import sys

import holdfast as hf


@hf.agent
async def meddles(what: str) -> str:
    return str(await getattr(hf.get("b"), what)())


if __name__ == "__main__":
    print(hf.run(meddles(sys.argv[1]), id="a", url=sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [("resume", "pause", "pause"), ("pause", None, "resume"), ("cancel", None, "retry")],
)
def test_an_act_that_was_cut_off_after_it_was_stored_does_not_overrule_who_came_since(
    what: str, before: str | None, after: str, tmp_path: Path
) -> None:
    script, url = tmp_path / "script.py", str(tmp_path / "s.db")
    script.write_text(CUT_OFF)

    def run(**env: str) -> subprocess.CompletedProcess[str]:
        return python(str(script), what, url, env=os.environ | env)

    async def person(*acts: str | None) -> hf.Status:
        async with hf.connect(url, agents=[target]) as app:
            b = await app.start(target(), id="b")

            async def is_at_rest() -> bool:
                row = await b._row()
                return row.status in (hf.Status.waiting, hf.Status.paused) and row.owner is None

            for act in acts:
                if act is not None:
                    await getattr(b, act)(by="eva")
                assert await eventually(is_at_rest)
            return await b.status()

    asyncio.run(person(None, before))
    cut_off = run(HOLDFAST_FAULT="amend.after_commit:kill@1")
    assert cut_off.returncode == -9, cut_off
    status = asyncio.run(person(after))
    ended = run()
    assert ended.returncode == 0, ended
    assert ended.stdout.strip() == {"resume": "None", "pause": "paused", "cancel": "cancelled"}[what]
    assert asyncio.run(person()) == status, "what the person did stands"
    by = [item.detail for item in timeline(url) if item.kind == "note" and "run a" in str(item.detail)]
    assert len(by) == 1


def timeline(url: str) -> list[Any]:
    async def read() -> list[Any]:
        async with hf.connect(url) as client:
            return await client.get("b").history()

    return asyncio.run(read())


@hf.agent
async def interrupts(other: str, timeout: float | None) -> str:
    try:
        said = f"told {await hf.get(other).interrupt('well?', timeout=timeout)}"
    except (TimeoutError, hf.RunFinished) as error:
        said = type(error).__name__
    await hf.receive(GO)
    return said


@pytest.mark.parametrize(
    ("timeout", "meanwhile", "expected"),
    [(None, "resume", "told heard well?"), (None, "cancel", "RunFinished"), (1.5, None, "TimeoutError")],
)
def test_a_run_that_interrupts_another_waits_for_the_reply_without_a_process(
    timeout: float | None, meanwhile: str | None, expected: str, tmp_path: Path
) -> None:
    url = str(tmp_path / "s.db")

    async def parks() -> None:
        async with hf.connect(url, agents=[target, interrupts]) as app:
            other = await app.start(target(), id="target")
            await until(other, "waiting")
            await other.pause()
            await until(other, "paused")
            run = await app.start(interrupts("target", timeout), id="r")
            await until(run, "waiting")

    async def goes_on() -> None:
        async with hf.connect(url, agents=[target, interrupts]) as app:
            run = app.get("r")
            if meanwhile is not None:
                await getattr(app.get("target"), meanwhile)()
            await run.send("go", True)
            assert await run.result(timeout=60) == expected
            mails = await app._store.mail(RunId("target"), after=0)
            assert [mail.kind for mail in mails].count("interrupt") == 1

    asyncio.run(parks())
    asyncio.run(goes_on())
    replies = [r for r in records_of(url, "r") if r.name == "hf:reply" and r.kind in (Kind.done, Kind.failed)]
    assert len(replies) == 1
