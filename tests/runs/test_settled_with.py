"""Who settles an effect in doubt, of which attempt, and with which arguments."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.control import doubts
from holdfast.model import Kind, RunId
from holdfast.testing.processes import environment
from tests.concurrency.crashes import RUN, Ended, cut, ended_of, run_here
from tests.eventually import eventually
from tests.runs import wavering
from tests.runs.journal import load, records_of
from tests.runs.wavering import DONE, charge, lines
from tests.scripts import python


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAVERING", str(tmp_path))
    DONE.clear()


def life(folder: Path, agent: str, *, die: str = "", who: str = "ann") -> tuple[int, str]:
    env = environment({"WAVERING": str(folder), "WHO": who, "DIE": die})
    ended = python(wavering.__file__, agent, str(folder / "s.db"), env=env)
    return ended.returncode, ended.stdout.strip() or ended.stderr.strip().rpartition("\n")[2]


def test_an_effect_that_was_cut_off_is_settled_with_what_it_was_begun_with(tmp_path: Path) -> None:
    assert life(tmp_path, "pays", die="after", who="ann")[0] == 9
    assert life(tmp_path, "pays", who="bob") == (0, "ann")
    assert lines("paid") == ["ann"]
    assert lines("asked about") == ["ann"]


def test_an_effect_that_did_not_happen_is_done_with_what_it_was_begun_with(tmp_path: Path) -> None:
    assert life(tmp_path, "pays", die="before", who="ann")[0] == 9
    assert life(tmp_path, "pays", who="bob") == (0, "ann")
    assert lines("paid") == ["ann"]
    digests = {r.args_digest for r in records_of(str(tmp_path / "s.db"), "r") if r.kind == Kind.intent}
    assert len(digests) == 1


def test_a_run_that_was_started_by_another_goes_on_with_it(tmp_path: Path) -> None:
    """Its process has died, and the next one was asked for the other run only."""
    assert life(tmp_path, "has_it_paid", die="after", who="ann")[0] == 9
    assert life(tmp_path, "has_it_paid", who="bob") == (0, "ann")
    assert lines("paid") == ["ann"]


def test_an_undo_gets_what_the_effect_was_done_with(tmp_path: Path) -> None:
    assert life(tmp_path, "books", die="later", who="ann")[0] == 9
    code, said = life(tmp_path, "books", who="bob")
    assert (code, "ValueError" in said) == (1, True)
    assert lines("undone") == ["ann"]


def test_what_cannot_be_read_again_blocks_with_the_call(tmp_path: Path) -> None:
    assert life(tmp_path, "pays_by_client", die="after", who="ann")[0] == 9
    code, _ = life(tmp_path, "pays_by_client", who="bob")
    assert code == 1
    url = str(tmp_path / "s.db")
    row, _ = load(url, "r")
    assert row.status is hf.Status.blocked
    assert lines("paid") == ["ann"]

    async def resolve() -> None:
        async with hf.connect(url) as app:
            [doubt] = await app.in_doubt()
            assert (doubt.key, doubt.cause) == ("pay_by_client#1", "code change")
            await doubt.resolve(hf.landed("ann"), by="eva")

    asyncio.run(resolve())
    assert life(tmp_path, "pays_by_client", who="bob") == (0, "ann")
    assert lines("paid") == ["ann"]


async def settle(folder: Path, verdict: hf.Verdict[str]) -> str:
    """Say what became of the one effect in doubt, while nobody has the run; what it was begun with."""
    async with hf.connect(str(folder / "s.db")) as app:
        [doubt] = await app.in_doubt()
        await doubt.resolve(verdict, by="eva")
        return str(json.loads(doubt.args or "{}")["who"])


def test_what_a_person_denies_is_done_with_what_it_was_begun_with(tmp_path: Path) -> None:
    """Also if nobody had the run when they said so."""
    assert life(tmp_path, "pays_untraced", die="after", who="ann")[0] == 9
    assert "is in doubt" in life(tmp_path, "pays_untraced", who="bob")[1]
    assert asyncio.run(settle(tmp_path, hf.not_landed())) == "ann"
    assert life(tmp_path, "pays_untraced", die="after", who="bob")[0] == 9
    assert lines("paid") == ["ann", "ann"]
    assert "is in doubt" in life(tmp_path, "pays_untraced", who="bob")[1]
    assert asyncio.run(settle(tmp_path, hf.landed("ann"))) == "ann"
    assert life(tmp_path, "pays_untraced", who="carl") == (0, "ann")


def test_a_doubt_is_about_what_the_last_attempt_was_begun_with(tmp_path: Path) -> None:
    """What the first was begun with cannot be read again; a person said that it did not happen."""
    assert life(tmp_path, "pays_by_client", die="after", who="ann")[0] == 9
    assert life(tmp_path, "pays_by_client", who="bob")[0] == 1
    assert asyncio.run(settle(tmp_path, hf.not_landed())) == "ann"
    assert life(tmp_path, "pays_by_client", die="after", who="bob")[0] == 9
    assert lines("paid") == ["ann", "bob"]
    assert life(tmp_path, "pays_by_client", who="carl")[0] == 1
    assert asyncio.run(settle(tmp_path, hf.landed("bob"))) == "bob"
    assert life(tmp_path, "pays_by_client", who="carl") == (0, "bob")
    assert lines("paid") == ["ann", "bob"]


class Held:
    """What an agent of this test waits for, and whom it pays."""

    go: dict[str, asyncio.Event]
    who: str


@hf.step
async def look(what: str) -> None:
    await Held.go[what].wait()


@hf.agent
async def pays_later() -> str:
    async def pay() -> str:
        await look("first")
        return await charge(Held.who)

    paid, _ = await asyncio.gather(pay(), look("meanwhile"))  # a body under way keeps the run in memory
    return paid


def test_what_was_cancelled_before_it_began_is_begun_with_anything(tmp_path: Path) -> None:
    (tmp_path / "go").touch()

    async def main() -> None:
        Held.go, Held.who = {"first": asyncio.Event(), "meanwhile": asyncio.Event()}, "ann"
        async with hf.connect(str(tmp_path / "s.db"), agents=[pays_later]) as app:
            run = await app.start(pays_later(), id="r")
            [execution] = app._here.executions
            await run.pause()
            await eventually(lambda: execution.run.gate.paused)
            Held.go["first"].set()
            await eventually(lambda: execution.run.gate.kept_back)
            assert await run.cancel(timeout=60) is hf.Status.cancelled
            [kept_back] = [r for r in await app._store.records(run.id) if r.name == "charge"]
            assert (kept_back.kind, kept_back.args) == (Kind.cancelled, None)
            Held.go["meanwhile"].set()
            Held.who = "bob"
            await run.retry()
            [doubt] = await eventually(run.in_doubt)
            assert json.loads(doubt.args or "null") == {"who": "bob"}
            await doubt.resolve(hf.not_landed())
            assert await run.result(timeout=60) == "charged bob"

    asyncio.run(main())


@hf.agent
async def charges() -> str:
    return await charge("bob")


def test_nobody_settles_what_is_being_executed(tmp_path: Path) -> None:
    """A person was asked about attempt 1. That says nothing about attempt 2."""

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db"), agents=[charges]) as app:
            run = await app.start(charges(), id="r")
            [doubt] = await eventually(run.in_doubt)
            await doubt.resolve(hf.not_landed())
            await eventually(lambda: DONE == ["begun 1", "begun 2"])
            assert await app.in_doubt() == await run.in_doubt() == []
            for attempt in (1, 2):
                with pytest.raises(hf.errors.AlreadySettled, match=r"charge#1"):
                    await doubts.resolve(
                        app._store, RunId("r"), "charge#1", {"verdict": "not_landed"}, attempt=attempt, by=None, note=""
                    )
            (tmp_path / "go").touch()
            assert await run.result(timeout=60) == "charged bob"

    asyncio.run(main())
    assert DONE == ["begun 1", "begun 2"]


def test_nobody_settles_what_a_dead_process_left_before_its_rule_was_asked(tmp_path: Path) -> None:
    assert life(tmp_path, "pays", die="after", who="ann")[0] == 9

    async def main() -> None:
        async with hf.connect(str(tmp_path / "s.db")) as app:
            assert await app.in_doubt() == []
            with pytest.raises(hf.errors.AlreadySettled, match="nobody has taken the run over"):
                await doubts.resolve(
                    app._store, RunId("r"), "pay#1", {"verdict": "not_landed"}, attempt=1, by=None, note=""
                )

    asyncio.run(main())
    assert life(tmp_path, "pays", who="ann") == (0, "ann")


@pytest.mark.parametrize("has_verify", [True, False])
def test_a_retry_settles_what_ended_in_doubt_and_does_not_repeat_it(tmp_path: Path, has_verify: bool) -> None:
    agent = "fails_in_doubt" if has_verify else "fails_in_doubt_for_good"
    assert life(tmp_path, agent, die="after")[0] == 9
    code, said = life(tmp_path, agent)  # the rule says: fail
    assert (code, "EffectInDoubt" in said) == (1, True)
    os.environ["VERIFY"] = "works"
    try:
        code, said = life(tmp_path, agent)  # a supervisor starts the script again
    finally:
        del os.environ["VERIFY"]
    assert lines("paid") == ["ann"]
    if has_verify:
        assert (code, said) == (0, "ann")
        return
    assert code == 1
    assert "is in doubt about" in said

    async def resolve() -> None:
        async with hf.connect(str(tmp_path / "s.db")) as app:
            [doubt] = await app.in_doubt()
            await doubt.resolve(hf.landed("ann"))

    asyncio.run(resolve())
    assert life(tmp_path, agent) == (0, "ann")
    assert lines("paid") == ["ann"]


def test_what_was_seized_from_its_owner_is_proof_of_nothing(tmp_path: Path) -> None:
    """Whoever takes a run from an owner writes down what is known of the owner."""
    assert life(tmp_path, "pays", die="after", who="ann")[0] == 9
    url = str(tmp_path / "s.db")

    async def pause() -> None:
        async with hf.connect(url) as app:
            assert await app.get("r").pause() is hf.Status.paused
            await app.get("r").resume()

    asyncio.run(pause())
    [note] = [r.payload for r in records_of(url, "r") if r.name == "paused" and '"on": true' in (r.payload or "")]
    assert '"seized": "lock"' in (note or "")


@pytest.mark.corrupts  # the store that was cut off has not the mail
def test_what_a_person_said_is_acted_on_once(tmp_path: Path) -> None:
    """Also if it was recorded, and a crash kept the outcome that follows from it from being stored."""

    async def settled() -> Ended:
        async with hf.connect(str(tmp_path / "s.db"), agents=[charges]) as app:
            run = await app.start(charges(), id=RUN)
            [doubt] = await eventually(run.in_doubt)
            await doubt.resolve(hf.landed("charged somehow"), by="eva")
            return await ended_of(app, await run.result(timeout=60))

    ended = asyncio.run(settled())
    assert ended.result == "charged somehow"
    [verdict] = [record for record in ended.records if record.kind == Kind.settled]
    again = run_here(cut(ended, verdict.seq, tmp_path / "cut" / "s.db"), charges())
    assert again.result == "charged somehow"
    assert [record for record in again.records if record.kind == Kind.settled] == [verdict]
    assert DONE == ["begun 1"]
