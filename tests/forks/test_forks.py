"""Forks: a new run that begins with what another one had done by a point, and shares nothing with it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import ConflictingStart, RunNotFound, RunPruned, UsageError
from holdfast.history.forks import ForkPlan
from holdfast.model import Kind, NoteKind, Record, RunId
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.forks import programs
from tests.forks.programs import (
    AGENTS,
    ON_POSTGRESQL,
    PROGRAMS,
    acts,
    asker,
    collector,
    nested,
    sequence,
    trip,
    wavering,
)
from tests.forkserver import ForkServer

#: Their results do not depend on ids, nor on the clock.
_STEADY = ("children", "signals", "questions", "a saga in a saga", "a saga that is undone")


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORLD", str(tmp_path / "world.jsonl"))
    return tmp_path / "world.jsonl"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "runs.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


def done(url: str, work: Callable[[hf.Holdfast], Coroutine[Any, Any, Any]]) -> Any:
    async def go() -> Any:
        async with hf.connect(url, agents=AGENTS) as app:
            return await work(app)

    return asyncio.run(asyncio.wait_for(go(), 120))


async def ended(run: hf.Run[Any]) -> Any:
    """Its result; whatever it waits for comes."""

    async def has_ended() -> bool:
        for question in await run.questions():
            await question.answer(True)
        info = await run.info()
        if info.status is hf.Status.waiting and info.agent in ("collector", "interrupted"):
            waits = (info.reason or {}).get("waits", [{}])
            await run.send("go", 7, dedup=f"at {waits[0].get('key')}")
        return info.status.is_final

    await eventually(has_ended)
    return await run.result()


async def original(app: hf.Holdfast, name: str) -> hf.Run[Any]:
    """A run of a program, to its end."""
    others = ON_POSTGRESQL if app._here.store.url.startswith("postgresql") else {}
    run = await app.start(others.get(name, PROGRAMS[name]), id="original")
    if name == "an interrupt":
        await waiting(run)
        assert await run.interrupt("you") == "YOU"
    await ended(run)
    return run


async def waiting(run: hf.Run[Any]) -> None:
    async def is_parked() -> bool:
        info = await run.info()
        return info.status is hf.Status.waiting

    await eventually(is_parked)


async def records_of(app: hf.Holdfast, run: hf.Run[Any]) -> list[Record]:
    return await app._here.store.records(RunId(run.id))


async def seq_of(app: hf.Holdfast, run: hf.Run[Any], kind: Kind, key: str) -> int:
    return next(r.seq for r in await records_of(app, run) if (r.kind, r.key) == (kind, key))


async def fork_everywhere(app: hf.Holdfast, name: str) -> None:
    run = await original(app, name)
    seqs = range(1, len(await records_of(app, run)) + 1)
    before, result = acts(), await run.result()
    plans: list[ForkPlan] = [await run.fork_plan(seq) for seq in seqs]
    forks = [await run.fork(seq, id=f"fork-{seq}") for seq in seqs]
    results = await asyncio.gather(*map(ended, forks))
    mine = {act.key for act in before if act.run == run.id and not act.key.startswith("hf:interrupt")}
    for plan, fork, got in zip(plans, forks, results, strict=True):
        copied = {call.key for call in plan.replays}
        did = [act for act in acts() if act.run == fork.id]
        assert not copied & {act.key for act in did}, f"repeated, forked at {plan.at}"
        assert not {each.idempotency_key for each in did} & {each.idempotency_key for each in before}, plan.at
        assert mine <= copied | {act.key for act in did}, f"left out, forked at {plan.at}"
        assert {act.key for act in did} <= set(plan.effects_again), f"not told, forked at {plan.at}"
        assert (await fork.verify_journal()).is_ok
        assert not [r for r in await records_of(app, fork) if r.name == NoteKind.unstable], "called with other ids"
        assert name not in _STEADY or got == result
    assert results[-1] == result
    if name == "steps, effects and ids":  # those that copied calls were made with are the same, the others are not
        for plan, got in zip(plans, results, strict=True):
            known = sum(call.name in ("think", "post") for call in plan.replays)
            same = [0, 1, 1, 2, 3][known]
            assert got[:same] == result[:same], plan.at
            assert not set(got[same:]) & set(result[same:]), plan.at


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_at_each_record_runs_to_the_end_and_repeats_nothing(name: str, file: str) -> None:
    done(file, lambda app: fork_everywhere(app, name))


_QUICK = ("signals", "a saga in a saga")


@pytest.mark.parametrize("name", [n if n in _QUICK else pytest.param(n, marks=pytest.mark.prove) for n in PROGRAMS])
def test_so_it_does_on_postgresql(name: str, postgres_url: str) -> None:
    done(postgres_url, lambda app: fork_everywhere(app, name))


# the point


def test_the_point_moves_back_before_what_is_open_and_says_so(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await original(app, "a saga in a saga")
        walking = await seq_of(app, run, Kind.done, "think#2")
        flight = await seq_of(app, run, Kind.intent, "book#1")
        plan = await run.fork_plan(walking)
        assert (plan.asked, plan.at) == (walking, flight - 1)
        assert [(each.what, each.key) for each in plan.in_the_way] == [("effect", "book#1"), ("saga", "hf.saga#1")]
        assert plan.effects_again == ("book#1", "book#2", "post#1")
        assert plan.replays == (), "there always is such a point: before the first call nothing is open"
        assert "had something to undo" in plan.sentences[0]
        end = await seq_of(app, run, Kind.done, "hf.saga#1")
        assert (await run.fork_plan(end)).at == end, "the block has ended"
        run = await app.start(nested(1), id="nested")
        await run.result()
        plan = await run.fork_plan(await seq_of(app, run, Kind.done, "think#1"))
        assert [each.key for each in plan.in_the_way] == ["book#1", "hf.saga#2", "hf.saga#1"], "the outer one took over"

        parent = await app.start(PROGRAMS["children"], id="parent")
        await parent.result()
        child = await seq_of(app, parent, Kind.child, "small#1")
        plan = await parent.fork_plan(child)
        assert (plan.at, [each.what for each in plan.in_the_way]) == (child - 1, ["child"])
        assert plan.as_dict()["in_the_way"] == [
            {"what": "child", "key": "small#1", "name": "small", "seq": child, "end": plan.in_the_way[0].end}
        ]

    done(file, go)


def test_a_point_that_does_not_exist_and_a_run_that_does_not_are_refused(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await original(app, "questions")
        head = len(await records_of(app, run))
        for at in (0, head + 1, -1, True, "3"):
            with pytest.raises(UsageError, match=f"has the records 1 to {head}"):
                await run.fork(at)  # type: ignore[arg-type]
        with pytest.raises(RunNotFound):
            await app.get("nobody").fork_plan(1)
        with pytest.raises(UsageError, match="it is in no turn"):
            await run.fork(state={"a": 1})

    done(file, go)


def test_a_run_that_was_cancelled_is_forked_from_before_that(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await app.start(collector(1), id="original")
        await waiting(run)
        assert await run.cancel() is hf.Status.cancelled
        plan = await run.fork_plan()
        assert [each.what for each in plan.in_the_way] == ["cancel"]
        assert await ended(await run.fork()) == [7]

    done(file, go)


# mail


def test_the_first_signal_of_a_fork_arrives_and_what_was_unread_is_listed(url: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await app.start(collector(2), id="original", paused=True)
        for value in (1, 2, 3):
            await run.send("go", value)
        await run.resume()
        assert await run.result() == [1, 2]
        first = await seq_of(app, run, Kind.done, "post#1")
        plan = await run.fork_plan(first)
        assert [(each.number, each.name) for each in plan.unread] == [(2, "go"), (3, "go")]
        assert any("2 messages of the original that the fork does not get: go" in each for each in plan.sentences)
        fork = await run.fork(first)
        await waiting(fork)

        async def is_parked() -> bool:
            row = await app._here.store.run(RunId(fork.id))
            return row is not None and row.owner is None and row.mail == 3

        await eventually(is_parked)
        await fork.send("go", 20)
        assert await fork.result() == [1, 20]
        assert [mail.number for mail in await app._here.store.mail(RunId(fork.id), after=0)] == [4]

    done(url, go)


def test_questions_that_were_open_are_asked_anew(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await app.start(asker(1), id="original")
        await waiting(run)
        (question,) = await run.questions()
        plan = await run.fork_plan()
        assert [call.key for call in plan.not_copied] == ["hf:ask#1"]
        fork = await run.fork()
        await waiting(fork)
        (other,) = await fork.questions()
        assert other.id != question.id
        await question.answer(False)
        assert [each.id for each in await fork.questions()] == [other.id]

    done(file, go)


# ids and keys


def test_a_fork_of_a_fork_has_the_ids_of_both(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await original(app, "steps, effects and ids")
        first = await run.fork(await seq_of(app, run, Kind.done, "think#1"))
        ids, theirs = await run.result(), await first.result()
        assert (ids[0] == theirs[0], ids[1] == theirs[1]) == (True, False)
        second = await first.fork(await seq_of(app, first, Kind.done, "post#2"))
        got = await second.result()
        assert got[:2] == theirs[:2]
        assert got[2] != theirs[2]
        assert (await first.fork()).id != first.id
        nonce = (await app._here.store.run(RunId(run.id))).nonce  # type: ignore[union-attr]
        shown = [r.payload or "" for each in (first, second) for r in await records_of(app, each)]
        assert not any(nonce in text for text in shown), "it is a secret, and journals are shown to people"

    done(file, go)


def test_what_a_copied_effect_is_known_by_stays_as_it_was(file: str, world: Path) -> None:
    """It ended in doubt; a retry of the fork settles it again, with the key that the outside world knows."""

    async def go(app: hf.Holdfast) -> None:
        mended = Path(f"{world}.mended")
        run = await app.start(wavering(1), id="original")
        with pytest.raises(hf.RunFailed):
            await run.result()
        (act,) = acts()
        fork = await run.fork()
        with pytest.raises(hf.RunFailed):
            await fork.result()
        assert acts() == [act]
        mended.touch()
        await fork.retry()
        assert await fork.result() == f"found {act.idempotency_key}"
        assert acts() == [act]

    done(file, go)


def test_children_are_known_from_the_record(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await original(app, "a child that is started")
        (child,) = [each.id for each in await app.runs() if each.id != run.id]
        fork = await run.fork(await seq_of(app, run, Kind.done, "small#1"))
        plan = await run.fork_plan(await seq_of(app, run, Kind.done, "small#1"))
        assert plan.children == (child,)
        assert await fork.result() == await run.result()
        assert sorted(each.id for each in await app.runs()) == sorted([run.id, child, fork.id])

    done(file, go)


# what it is


def test_it_says_where_it_comes_from_and_stands_alone(url: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await app.start(sequence(1), id="original", tags={"who": "ann"})
        await run.result()
        at = await seq_of(app, run, Kind.done, "post#1")
        changed = "x" * 10_000  # a blob
        fork = await run.fork(at, results={"think#1": changed}, by="ann", note="what if", id="fork")
        shared = await run.fork(at, thread_id=run.thread_id)
        assert fork.thread_id != run.thread_id == shared.thread_id
        await asyncio.gather(fork.result(), shared.result())
        (created, *rest) = await records_of(app, fork)
        said = json.loads(created.payload or "")["forked"]
        assert (said["run"], said["at"], said["by"], said["note"], list(said["changed"])) == (
            "original",
            at,
            "ann",
            "what if",
            ["think#1"],
        )
        assert {record.epoch for record in (created, *rest) if record.key == "post#1"} == {0}
        info = await fork.info()
        assert (info.parent_id, info.tags, info.steps, info.effects) == (None, {"who": "ann"}, 2, 2)
        assert "forked from original at record" in (await fork.history())[0].detail

    done(url, go)


def test_pruning_the_original_changes_nothing(url: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await app.start(collector(2), id="original")
        assert await ended(run) == [7, 7]
        fork = await run.fork(await seq_of(app, run, Kind.done, "post#1"))
        await waiting(fork)
        before = await records_of(app, fork)
        assert (await app.prune(older_than=timedelta(0))).runs == 1
        with pytest.raises(RunPruned):
            await run.fork_plan()
        assert await records_of(app, fork) == before
        assert (await fork.verify_journal()).is_ok
        again = await fork.fork()
        assert await ended(fork) == await ended(again) == [7, 7]

    done(url, go)


@pytest.mark.parametrize("key", ["post#2", "hf.saga#1", "nothing#1"])
def test_results_that_a_fork_cannot_have_are_refused(key: str, file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await app.start(trip("Rome"), id="original")
        await run.result()
        with pytest.raises(UsageError, match=r"no call that had ended|has no result of yours"):
            await run.fork(results={key: 1})
        with pytest.raises(UsageError, match="the point was moved back, because the effect book#1"):
            await run.fork(await seq_of(app, run, Kind.done, "think#1"), results={"think#1": "X"})

    done(file, go)


def test_a_result_decides_what_happens_next(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await app.start(asker(1), id="original")
        assert await ended(run) == [True, True]
        fork = await run.fork(await seq_of(app, run, Kind.done, "hf:ask#1"), results={"hf:ask#1": False})
        assert await ended(fork) == [False, True]
        assert [act.value for act in acts()] == ["first True", "first False"]

    done(file, go)


def test_the_same_fork_under_the_same_id_is_made_once(file: str) -> None:
    async def go(app: hf.Holdfast) -> None:
        run = await original(app, "questions")
        at = await seq_of(app, run, Kind.done, "hf:ask#1")
        first, again = await run.fork(at, id="fork"), await run.fork(at, id="fork")
        assert first.token == again.token
        with pytest.raises(ConflictingStart):
            await run.fork(at, id="fork", results={"hf:ask#1": False})
        with pytest.raises(ConflictingStart):
            await run.fork(1, id="fork")
        with pytest.raises(UsageError, match="needs an id of its own"):
            await run.fork(at, id="original")
        await ended(first)

    done(file, go)


# the command


@pytest.fixture
def commands(tmp_path: Path, forkserver: ForkServer, world: Path) -> Commands:
    made = Commands(tmp_path, forkserver)
    made.environment["WORLD"] = str(world)
    return made


@pytest.mark.parametrize("point", ["fork.before_commit", "fork.after_commit"])
def test_a_fork_that_is_killed_is_made_once_by_the_same_command(point: str, url: str, commands: Commands) -> None:
    async def prepare(app: hf.Holdfast) -> None:
        await original(app, "questions")

    done(url, prepare)
    fork = ("fork", "original", "--at", "3", "--id", "fork", "--db", url)
    assert commands(*fork, HOLDFAST_FAULT=f"{point}:kill").code == -signal.SIGKILL
    for _ in range(2):
        again = commands(*fork, "--json")
        assert again.code == 0, again.err
        assert again.json["fork"]["run"] == "fork"

    async def finish(app: hf.Holdfast) -> None:
        assert sorted(each.id for each in await app.runs()) == ["fork", "original"]
        assert await ended(app.get("fork")) == [True, True]

    done(url, finish)


def test_the_command_tells_before_it_acts(file: str, commands: Commands) -> None:
    done(file, lambda app: original(app, "steps, effects and ids"))
    told = commands("fork", "original", "--at", "4", "--dry-run", "--db", file)
    assert told.code == 0, told.err
    assert "The fork begins behind record" in told.out
    assert commands("runs", "--db", file, "--json").json["items"][0]["id"] == "original"
    made = commands("fork", "original", "--at", "6", "--result", 'think#1="X"', "--note", "why", "--db", file)
    assert made.code == 0, made.err
    assert made.out.startswith("Forked original as r_")
    assert "Another result: think#1." in made.out
    assert f"holdfast worker {programs.__file__}" in made.err, "who executes it, as the original was"
    for wrong in (
        ("--at", "99"),
        ("--result", "nonsense"),
        ("--at", "1", "--turn", "1"),
        ("--turn", "1"),
        ("--set", "a=1"),
    ):
        assert commands("fork", "original", *wrong, "--db", file).code == 2, wrong
