"""Frozen copies: read, verified and forked where they are, and never executed."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.control.upkeep import filing
from holdfast.errors import RunMoved
from holdfast.model import RunId
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.forks.programs import acts, asker, collector, failing, go
from tests.forks.test_forks import commands, done, ended, url, waiting, world

__all__ = ["commands", "url", "world"]


def whole(path: str, run_id: str) -> Any:
    async def go(app: hf.Holdfast) -> Any:
        return await app._here.store.whole(RunId(run_id))

    return done(path, go)


def test_an_unfinished_run_is_copied_as_it_is_and_can_only_be_looked_at_and_forked(
    url: str, tmp_path: Path, commands: Commands
) -> None:
    async def prepare(app: hf.Holdfast) -> None:
        run = await app.start(collector(2), id="original")
        await run.send("go", 1)
        await (await app.start(asker(1), id="other")).info()
        await waiting(run)
        await waiting(app.get("other"))
        with pytest.raises(hf.RunFailed):
            await (await app.start(failing(1), id="failing")).result()

    done(url, prepare)
    bundle = str(tmp_path / "bundle.db")
    first = commands("copy", "original", bundle, "--frozen", "--db", url, "--json")
    assert first.code == 0, first.err
    assert [(each["id"], each["status"], each["outcome"]) for each in first.json["items"]] == [
        ("original", "waiting", "copied")
    ]
    assert commands("copy", url, bundle, "other", "failing", "--frozen").code == 0
    again = commands("copy", "original", bundle, "--frozen", "--db", url, "--json")
    assert again.json["items"][0]["outcome"] == "there already"
    assert commands("copy", bundle, str(tmp_path / "c.db"), "original", "--move").code == 5, "it cannot be moved"
    assert commands("verify", "--all", "--db", bundle).code == 0
    shown = commands("show", "original", "--db", bundle)
    assert shown.code == 0
    assert "frozen copy" in shown.err
    assert "frozen copy from" in commands("runs", "--db", bundle).out
    (tmp_path / "letters.py").write_text(
        "import holdfast as hf\n\n@hf.agent\nasync def collector(n: int) -> None: ...\n"
    )
    checked = commands("check", "letters.py", "--db", bundle, "--json")
    assert [(each["run_id"], each["prospect"]) for each in checked.json["items"]] == [("original", "goes on")]
    before, there = whole(url, "original"), whole(bundle, "original")
    for part in ("records", "blobs", "mail", "questions", "landed"):
        assert getattr(before, part) == getattr(there, part), part

    async def act(app: hf.Holdfast) -> None:
        did = acts()
        run, other, failed = app.get("original"), app.get("other"), app.get("failing")
        for refused in (run.resume(), run.cancel(), run.pause(), run.send("go", 2), failed.retry(), other.resume()):
            with pytest.raises(RunMoved, match="is a frozen copy of a run in"):
                await refused
        (question,) = await other.questions()
        with pytest.raises(RunMoved):
            await question.answer(True)
        with pytest.raises(RunMoved):
            await run.result(timeout=5)
        fork = await run.fork()
        assert await ended(fork) == [1, 7]
        assert [each.value for each in acts()[len(did) :]] == ["got 1"]
        assert (await fork.verify_journal()).is_ok
        row = await app._here.store.run(RunId("original"))
        assert row == there.row, "nobody has changed it"

    done(bundle, act)

    async def go_on(app: hf.Holdfast) -> None:
        run = app.get("original")
        await run.send("go", 5)

        async def is_over() -> bool:
            return (await run.status()).is_final

        await eventually(is_over)
        assert await run.result() == [1, 5]

    done(url, go_on)
    later = commands("copy", "original", bundle, "--frozen", "--db", url, "--json")
    assert later.json["items"][0]["outcome"] == "copied", "a later state takes the place of the earlier one"
    assert commands("verify", "original", "--db", bundle).code == 0
    assert commands("show", "original", "--db", bundle, "--json").json["run"]["status"] == "done"


@pytest.mark.parametrize("point", ["copy.before_commit", "copy.after_commit"])
def test_a_frozen_copy_that_is_killed_is_made_by_the_same_command(
    point: str, tmp_path: Path, commands: Commands
) -> None:
    async def prepare(app: hf.Holdfast) -> None:
        await waiting(await app.start(collector(1), id="original"))

    url, bundle = str(tmp_path / "runs.db"), str(tmp_path / "bundle.db")
    done(url, prepare)
    copy = ("copy", "original", bundle, "--frozen", "--db", url)
    assert commands(*copy, HOLDFAST_FAULT=f"{point}:kill").code == -signal.SIGKILL
    assert commands(*copy).code == 0
    assert commands("verify", "original", "--db", bundle).code == 0
    assert "frozen copy from" in commands("runs", "--db", bundle).out


@hf.agent(signals=[go])
async def author(n: int) -> int:
    await hf.artifact("letter", b"x" * 1000)
    await hf.receive(go)
    await hf.artifact("letter", b"y" * 1000)
    return n


def test_files_come_along_and_stay_when_the_original_is_pruned(tmp_path: Path, commands: Commands) -> None:
    url, bundle = str(tmp_path / "runs.db"), str(tmp_path / "bundle.db")

    def put_out(found: list[Any]) -> list[tuple[str, int, str]]:
        return sorted((each.name, each.version, each.state.value) for each in found if each.name == "letter")

    async def live() -> None:
        async with hf.connect(url, agents=[author]) as app:
            run = await app.start(author(1), id="original")
            await waiting(run)
            assert commands("copy", "original", bundle, "--frozen", "--db", url).code == 0
            fork = await run.fork()
            await waiting(fork)
            await run.send("go", 1)
            assert await run.result() == 1
            assert (await app.prune(older_than=timedelta(0))).runs == 1
            assert put_out(await fork.artifacts()) == [("letter", 1, "stored")]
            await fork.send("go", 1)
            assert await fork.result() == 1
            assert put_out(await fork.artifacts()) == [("letter", 1, "stored"), ("letter", 2, "stored")]
        async with hf.connect(bundle) as app:
            assert put_out(await app.get("original").artifacts()) == [("letter", 1, "stored")]

    asyncio.run(asyncio.wait_for(live(), 60))


def test_files_of_a_fork_that_nobody_made_are_pruned(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made it was killed before the commit."""

    async def live() -> None:
        async with hf.connect(url, agents=[author]) as app:
            run = await app.start(author(1), id="original")
            await waiting(run)
            store = app._here.store

            async def chunks() -> list[str]:
                return await store.chunk_page(RunId("fork"), after="", limit=10)

            async def killed(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            for patience_us in (86_400_000_000, -1):
                with monkeypatch.context() as patched:
                    patched.setattr(filing, "_PATIENCE_US", patience_us)
                    patched.setattr(store, "put", killed)
                    with pytest.raises(KeyboardInterrupt):
                        await run.fork(id="fork")
                await app.prune(older_than=timedelta(0))
                assert bool(await chunks()) is (patience_us > 0), "it may be under way, or not any more"
            monkeypatch.setattr(filing, "_PATIENCE_US", -1)
            fork = await run.fork(id="fork")
            await app.prune(older_than=timedelta(0))
            assert await chunks()
            assert [each.state.value for each in await fork.artifacts() if each.name == "letter"] == ["stored"]

    asyncio.run(asyncio.wait_for(live(), 60))
