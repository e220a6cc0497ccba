"""What a signal brings is stored once, in its mail; whoever reads the run finds it there, and notices if it changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.model import Kind, RunId
from holdfast.testing.reading import read, read_run
from tests.turns.stage import RUN, Stage, word

LONG = "tides and moons, " * 200


@hf.step
async def shout(text: str) -> int:
    return len(text)


@hf.agent(signals=[word])
async def listens(times: int) -> list[str]:
    heard = []
    for _ in range(times):
        heard.append(await hf.receive(word))
        await shout(heard[-1][:5])
    return [each[:5] + str(len(each)) for each in heard]


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(tmp_path / "s.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


def test_it_is_in_its_mail_alone_and_comes_back_from_there(stage: Stage) -> None:
    stage.go(listens(3), LONG + "1", "short")
    _, records = read_run(stage.url, RUN)
    told = [record for record in records if record.kind in (Kind.decided, Kind.done)]
    assert not [record for record in told if LONG[100:200] in (record.payload or "") + (record.args or "")]
    assert read(stage.url, lambda store: store.blobs(RunId(RUN), [])) == {}
    assert stage.go(listens(3), LONG + "333") == ["tides3401", "short5", "tides3403"]
    assert stage.look(lambda run: run.verify_journal()).is_ok
    shown = [item.detail for item in stage.look(lambda run: run.history()) if item.kind == "receive"]
    assert shown[0].startswith('→ "tides and moons')
    assert shown[0].endswith("… (3403 bytes)")
    assert shown[1] == '→ "short"'


def test_a_fork_has_it_though_it_has_no_mail(stage: Stage) -> None:
    stage.go(listens(2), LONG)

    async def forked() -> Any:
        async with hf.connect(stage.url, agents=[listens]) as app:
            run = await app.get(RUN).fork()
            await app.get(RUN).cancel()
            await run.send(word, "more")
            result = await run.result()
            again = await run.fork()
            await again.resume()
            return result, await run.verify_journal(), await again.verify_journal()

    result, first, second = asyncio.run(asyncio.wait_for(forked(), 60))
    assert result == ["tides3400", "more4"]
    assert first.is_ok
    assert second.is_ok


@pytest.mark.corrupts
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE mailbox SET body = replace(body, 'moons', 'spoon')",
        "UPDATE mailbox SET body = 'x'",
        "UPDATE mailbox SET body = '{\"value\":1}'",
        "DELETE FROM mailbox",
    ],
    ids=["another value", "no JSON", "no text", "gone"],
)
def test_damage_to_it_quarantines_the_run_before_code_sees_it(tmp_path: Path, damage: str) -> None:
    stage = Stage(tmp_path / "s.db")
    stage.go(listens(2), LONG)
    with apsw.Connection(stage.url) as connection:
        connection.execute(damage)
    found = stage.look(lambda run: run.verify_journal())
    assert not found.is_ok

    async def resumed() -> Any:
        async with hf.connect(stage.url, agents=[listens]) as app:
            with pytest.raises(hf.errors.CorruptJournal):
                await app.resume(RUN)
            return await app.get(RUN).status()

    assert asyncio.run(asyncio.wait_for(resumed(), 60)) is hf.Status.quarantined
