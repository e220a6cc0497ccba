"""Forks of runs with turns: the prologue, and the turn of the point with its state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.handle.forks import with_value
from holdfast.model import RunId
from tests.eventually import eventually
from tests.forks.programs import acts, go, post, small, think
from tests.forks.test_forks import file, records_of, url, waiting, world

__all__ = ["file", "url", "world"]


@dataclass
class Chat:
    ids: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@hf.agent(signals=[go])
async def chat(turns: int) -> Chat:
    own = str(hf.uuid4())
    await post("hello")
    name = str(hf.uuid4())
    state = Chat()
    async for state in hf.turns(Chat(["x" * 9000])):
        got = await hf.receive(go)
        state.ids.append(str(hf.uuid4()))
        await post([own, name, state.ids[-1]])
        state.said.append(await think(f"{got}"))
        if len(state.said) == turns:
            break
    await post("bye")
    return state


def done(url: str, work: Any) -> None:
    async def live() -> None:
        async with hf.connect(url, agents=[chat, small]) as app:
            await work(app)

    asyncio.run(asyncio.wait_for(live(), 120))


async def ended(run: hf.Run[Any]) -> Chat:
    async def has_ended() -> bool:
        info = await run.info()
        if info.status is hf.Status.waiting:
            waits = (info.reason or {}).get("waits", [{}])
            await run.send("go", 7, dedup=f"at {waits[0].get('key')}")
        return info.status.is_final

    await eventually(has_ended)
    result: Chat = await run.result()
    return result


async def fork_everywhere(app: hf.Holdfast) -> None:
    run = await app.start(chat(3), id="original")
    result = await ended(run)
    assert result.said == ["7", "7", "7"]
    before = acts()
    seqs = range(1, len(await records_of(app, run)) + 1)
    plans = [await run.fork_plan(seq) for seq in seqs]
    forks = [await run.fork(seq, id=f"fork-{seq}") for seq in seqs]
    results = await asyncio.gather(*map(ended, forks))
    posted = [act.value for act in before]
    for plan, fork, got in zip(plans, forks, results, strict=True):
        copied = {call.key for call in plan.replays}
        did = [act for act in acts() if act.run == fork.id]
        assert not copied & {act.key for act in did}, f"repeated, forked at {plan.at}"
        assert not {each.idempotency_key for each in did} & {each.idempotency_key for each in before}, plan.at
        assert {act.key for act in did} <= set(plan.effects_again) | {"@4/post#1"}, f"not told, forked at {plan.at}"
        assert (await fork.verify_journal()).is_ok
        assert got.said == result.said, plan.at
        if plan.turn:
            for act in did:
                if isinstance(act.value, list):  # what the prologue made is the same, in every turn
                    assert act.value[:2] == posted[1][:2], plan.at
            assert got.ids[: plan.turn] == result.ids[: plan.turn], "those of the turns before are in the state"
    assert results[-1] == result


def test_a_fork_at_each_record_of_a_loop_runs_to_the_end_and_repeats_nothing(url: str) -> None:
    done(url, fork_everywhere)


def test_a_turn_begins_with_another_state(file: str) -> None:
    async def live(app: hf.Holdfast) -> None:
        run = await app.start(chat(2), id="original")
        await ended(run)
        fork = await run.fork(turn=2, state=Chat(["new"], ["one"]))
        assert (await ended(fork)).said == ["one", "7"]
        plan = await run.fork_plan(turn=2)
        assert (plan.turn, [call.key for call in plan.replays]) == (2, ["post#1"])
        with pytest.raises(UsageError, match="has the turns 1 to 2"):
            await run.fork(turn=9)
        with pytest.raises(UsageError, match="it is in no turn"):
            await run.fork(1, state=Chat())
        await waiting(await run.fork(turn=1, id="again"))
        row = await app._here.store.run(RunId("again"))
        assert row is not None
        assert row.turn == 1

    done(file, live)


def test_parts_of_a_state_are_set() -> None:
    tree = {"a": [{"b": 1}], "c": 2}
    assert with_value(tree, ["a", "0", "b"], 5, path="a.0.b") == {"a": [{"b": 5}], "c": 2}
    assert with_value(tree, ["d"], 5, path="d") == tree | {"d": 5}
    for path in ("a.1.b", "x.y", "c.d"):
        with pytest.raises(UsageError, match="nothing at"):
            with_value(tree, path.split("."), 5, path=path)
