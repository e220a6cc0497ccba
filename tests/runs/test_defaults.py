"""What a call means by default is part of what is stored: a deploy that changes a default changes no run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.model import Kind
from tests.eventually import eventually
from tests.runs.journal import records_of
from tests.scripts import python
from tests.workers import until

GO = ("go", bool)
Agent = hf.Agent[..., Any]


def counting(default: int) -> Agent:
    """An agent that says what it was called with, as it is written before and after a deploy."""

    @hf.agent
    async def count(topic: str, limit: int = default) -> list[Any]:
        await hf.receive(GO)
        return [topic, limit]

    return count


def parenting(default: int) -> list[Agent]:
    count = counting(default)

    @hf.agent
    async def parent() -> list[Any]:
        found: list[Any] = await count("child")
        return found

    return [count, parent]


async def finish(app: hf.Holdfast, run_id: str) -> Any:
    run = app.get(run_id)
    await run.send("go", True, dedup="go")
    return await run.result(timeout=30)


def test_a_run_keeps_the_default_it_was_started_with(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    async def go() -> None:
        old, new = counting(2), counting(99)
        async with hf.connect(url, agents=[old]) as app:
            run = await app.start(old("tides"), id="r")
            await until(run, "waiting")
        async with hf.connect(url) as client:
            await client.start(old("queued"), id="q")
        async with hf.connect(url, agents=[new]) as app:
            assert await finish(app, "r") == ["tides", 2]
            assert await finish(app, "q") == ["queued", 2], "nobody had begun it"
            assert await finish(app, (await app.start(new("tides"), id="s")).id) == ["tides", 99]

    asyncio.run(go())


def test_a_start_is_the_same_by_what_was_given_or_by_what_it_means(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    @hf.agent(name="count")
    async def without(topic: str) -> list[Any]:
        await hf.receive(GO)
        return [topic]

    async def go() -> None:
        old, new = counting(2), counting(99)
        async with hf.connect(url, agents=[old]) as app:
            await app.start(old("a"), id="r")
            await app.start(old("a", 2), id="r")
            await app.start(old("a", limit=2), id="r")
            await app.start(old("a", 5), id="five")
            for other in (old("a", 3), old("b")):
                with pytest.raises(hf.ConflictingStart):
                    await app.start(other, id="r")
            with pytest.raises(hf.ConflictingStart):
                await app.start(old("a"), id="five")
        async with hf.connect(url, agents=[without]) as app:
            await app.start(without("a"), id="before")
        async with hf.connect(url, agents=[new]) as app:
            await app.start(new("a"), id="r")
            await app.start(new("a", 2), id="r")
            await app.start(new("a"), id="before")
            for other_id in ("five", "r"):
                with pytest.raises(hf.ConflictingStart):
                    await app.start(new("a", 99), id=other_id)
            with pytest.raises(hf.ConflictingStart):
                await app.start(new("a"), id="five")
            assert await finish(app, "r") == ["a", 2]
            assert await finish(app, "before") == ["a", 99], "it was started when there was no such argument"

    asyncio.run(go())


def test_a_script_that_is_run_again_with_another_default_goes_on(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with pytest.raises(hf.NeedsHuman):
        hf.run(counting(2)("a"), id="r", url=url)

    async def send() -> None:
        async with hf.connect(url) as client:
            await client.get("r").send("go", True)

    asyncio.run(send())
    assert hf.run(counting(99)("a"), id="r", url=url) == ["a", 2]


def test_an_argument_that_was_taken_away_is_missed_only_if_it_was_given(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    @hf.agent(name="count")
    async def without(topic: str) -> list[Any]:
        await hf.receive(GO)
        return [topic]

    async def go() -> None:
        old = counting(2)
        async with hf.connect(url, agents=[old]) as app:
            for run in [await app.start(old("a"), id="default"), await app.start(old("a", 2), id="given")]:
                await until(run, "waiting")
        async with hf.connect(url, agents=[without]) as app:
            assert await finish(app, "default") == ["a"]
            with pytest.raises(hf.RunBlocked, match="limit"):
                await finish(app, "given")

    asyncio.run(go())


def test_a_child_keeps_its_default_also_if_its_parent_is_taken_up_by_other_code(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    async def go() -> None:
        old, new = parenting(2), parenting(99)
        async with hf.connect(url, agents=old) as app:
            run = await app.start(old[1](), id="parent")
            await until(run, "waiting")
        async with hf.connect(url, agents=new) as app:
            (child,) = await app.runs(agent="count")
            assert await finish(app, child.id) == ["child", 2]
            assert await app.get("parent").result(timeout=30) == ["child", 2]

    asyncio.run(go())


def test_a_default_that_cannot_be_stored_is_that_of_the_code(tmp_path: Path) -> None:
    class Client:
        pass

    @hf.agent
    async def calls(topic: str, client: Any = Client(), limit: int = 2) -> list[Any]:  # noqa: B008
        return [topic, type(client).__name__, limit]

    url = str(tmp_path / "s.db")
    assert hf.run(calls("a"), id="r", url=url) == ["a", "Client", 2]
    assert json.loads(records_of(url, "r")[0].args or "") == {"topic": "a", "limit": 2}
    with pytest.raises(hf.Unserialisable, match="client"):
        hf.run(calls("a", Client()), id="s", url=url)


def test_runs_do_not_share_a_mutable_default(tmp_path: Path) -> None:
    @hf.agent
    async def gathers(found: list[int] = []) -> list[int]:  # noqa: B006
        found.append(len(found))
        return found

    url = str(tmp_path / "s.db")
    assert [hf.run(gathers(), id=f"r{n}", url=url) for n in range(3)] == [[0], [0], [0]]


@pytest.mark.parametrize("who", ["the worker", "a client"])
def test_a_trigger_starts_runs_with_the_defaults_of_the_code_there_is_now(tmp_path: Path, who: str) -> None:
    url = str(tmp_path / "s.db")

    async def emitted(app: hf.Holdfast, topic: str) -> None:
        if who == "the worker":
            await app.emit("asked", topic)
        else:
            async with hf.connect(url) as client:
                await client.emit("asked", topic)

    async def go() -> None:
        old, new = counting(2), counting(99)
        async with hf.connect(url, agents=[old]) as app:
            await app.on("asked", old)
            await emitted(app, "early")
            await waiting(app, 1)
        async with hf.connect(url, agents=[new]) as app:
            await emitted(app, "late")
            runs = await waiting(app, 2)
            found = [await finish(app, each.id) for each in runs]
            assert sorted(found) == [["early", 2], ["late", 99]]

    async def waiting(app: hf.Holdfast, count: int) -> list[hf.RunInfo]:
        async def look() -> list[hf.RunInfo]:
            runs = await app.runs(status="waiting")
            return runs if len(runs) == count else []

        return await eventually(look)

    asyncio.run(go())


def test_a_schedule_starts_runs_with_the_defaults_of_its_declaration(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")

    async def go() -> None:
        old, new = counting(2), counting(99)
        async with hf.connect(url, agents=[old]) as app:
            await app.schedule("s", old("a"), cron="0 0 1 1 *")
        async with hf.connect(url, agents=[new]) as app:
            early = await app.fire_schedule("s")
            assert await finish(app, early.id) == ["a", 2]
            await app.schedule("s", new("a"), cron="0 0 1 1 *")
            late = await app.fire_schedule("s")
            assert await finish(app, late.id) == ["a", 99]
            (run,) = await app.backfill_schedule(
                "s", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
            )
            assert await finish(app, run.id) == ["a", 99]

    asyncio.run(go())


def paying(default: int, log: list[Any], *, more: bool = False) -> Agent:
    @hf.effect
    async def pay(to: str, amount: int = default) -> int:
        log.append(("pay", to, amount))
        return amount

    @hf.effect(name="pay")
    async def pay_more(to: str, amount: int = default, *, currency: str = "EUR") -> int:
        log.append(("pay", to, amount, currency))
        return amount

    @hf.step
    async def look(at: str, deep: int = default) -> int:
        log.append(("look", at, deep))
        return deep

    chosen: Callable[..., Any] = pay_more if more else pay

    @hf.agent
    async def pays() -> list[Any]:
        seen = [await chosen("ann"), await look("it")]
        await hf.receive(GO)
        return [*seen, await chosen("bob")]

    return pays


@pytest.mark.parametrize("more", [False, True], ids=["another default", "another argument"])
def test_calls_that_are_recorded_answer_whatever_the_default_is_now(tmp_path: Path, more: bool) -> None:
    """An optional argument that is new, or another default, is no other call: nothing is repeated, nothing blocks."""
    url, log = str(tmp_path / "s.db"), []  # type: ignore[var-annotated]

    async def go() -> None:
        old, new = paying(2, log), paying(99, log, more=more)
        async with hf.connect(url, agents=[old]) as app:
            await until(await app.start(old(), id="r"), "waiting")
        assert log == [("pay", "ann", 2), ("look", "it", 2)]
        async with hf.connect(url, agents=[new]) as app:
            assert await finish(app, "r") == [2, 2, 99]
        assert [entry[:3] for entry in log[2:]] == [("pay", "bob", 99)]

    asyncio.run(go())
    intents = [json.loads(r.args or "") for r in records_of(url, "r") if r.kind == Kind.intent]
    assert intents[0] == {"to": "ann", "amount": 2}, "what was done is on record, defaults included"


DEPLOYED = """
import asyncio
import sys

import holdfast as hf


@hf.agent
async def count(topic: str, limit: int = {default}) -> int:
    return limit


@hf.agent
async def parent() -> int:
    return await count("child")


if __name__ == "__main__":
    print(hf.run(parent(), id="parent", url=sys.argv[1]))
"""


def test_a_child_that_was_about_to_be_stored_gets_the_default_of_then(tmp_path: Path) -> None:
    script, url = tmp_path / "script.py", str(tmp_path / "s.db")

    def run(default: int, **env: str) -> subprocess.CompletedProcess[str]:
        script.write_text(DEPLOYED.format(default=default))
        return python(str(script), url, env=os.environ | env)

    assert run(2, HOLDFAST_FAULT="child.before_start:kill@1").returncode == -9
    assert run(99).stdout == "2\n"


HEAD = """
import sys

import holdfast as hf


def log(*what):
    with open(sys.argv[2], "a") as file:
        print(*what, file=file)


class Client:
    pass

"""
VERIFIED = """
@hf.effect(settle=0)
async def pay(client: Client, to: str, amount: int = {default}, *, via: Client = Client()) -> int:
    log("pay", to, amount)
    return amount


@pay.verify
async def look(client: Client, to: str, amount: int = {default}, *, via: Client = Client()) -> hf.Verdict[int]:
    log("verify", to, amount)
    return hf.landed(amount) if to == "ann" else hf.not_landed()


@hf.agent
async def pays() -> list[int]:
    return [await pay(Client(), "ann"), await pay(Client(), "bob")]
"""
UNDONE = """
@hf.effect(settle=0, on_doubt="retry")
async def pay(to: str, amount: int = {default}) -> int:
    log("pay", to, amount)
    return amount


@pay.undo
async def pay_back(paid: int | None, to: str, amount: int = {default}) -> None:
    log("undo", to, amount)


@hf.agent
async def pays() -> list[int]:
    async with hf.saga():
        await pay("ann")
        await pay("bob")
        await pay("eve")
        raise ValueError("take it back")
"""
TAIL = """

if __name__ == "__main__":
    print(hf.run(pays(), id="r", url=sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("agent", "fault", "expected"),
    [
        (VERIFIED, "effect.after_body:kill@1", ["pay ann 2", "verify ann 2", "pay bob 99"]),
        (VERIFIED, "effect.after_body:kill@2", ["pay ann 2", "pay bob 2", "verify bob 2", "pay bob 2"]),
        (
            UNDONE,
            "effect.after_body:kill@2",
            ["pay ann 2", "pay bob 2", "pay bob 2", "pay eve 99", "undo eve 99", "undo bob 2", "undo ann 2"],
        ),
    ],
    ids=["verified", "verified, not landed", "undone"],
)
def test_an_effect_is_settled_repeated_and_undone_with_the_default_it_was_begun_with(
    agent: str, fault: str, expected: list[str], tmp_path: Path
) -> None:
    script, url, log = tmp_path / "script.py", str(tmp_path / "s.db"), tmp_path / "log"

    def run(default: int, **env: str) -> subprocess.CompletedProcess[str]:
        script.write_text(HEAD + agent.format(default=default) + TAIL)
        return python(str(script), url, str(log), env=os.environ | env)

    assert run(2, HOLDFAST_FAULT=fault).returncode == -9
    ended = run(99)
    assert log.read_text().splitlines() == expected, ended
