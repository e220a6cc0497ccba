"""The calls of runs that really happened: what is told of each, from its journal alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.handle.run import Run
from holdfast.history.calls import AttemptEnd, CallInfo, calls_of
from holdfast.model import Status
from tests.eventually import eventually

GO = hf.Signal("go", int)
failures: list[str] = []


@hf.step
async def fetch(n: int) -> int:
    hf.usage(model="m", input_tokens=10, output_tokens=n, cost=0.5)
    return n * 2


@hf.step(retries=hf.Retry(3, first=0.001))
async def flaky() -> str:
    if failures:
        raise ValueError(failures.pop())
    return "ok"


@hf.step
async def parse(text: str) -> int:
    return int(text) if not failures else int(failures[0])


@hf.effect
async def pay(n: int) -> str:
    if failures:
        raise OSError(failures.pop())
    return f"paid {n}"


@hf.agent
async def helper(n: int) -> int:
    return await fetch(n)


@hf.agent
async def works() -> list[Any]:
    async def half(n: int) -> int:
        return await fetch(n)

    return [await fetch(1), await pay(2), await helper(3), *await asyncio.gather(half(4), half(5))]


@hf.agent
async def tries() -> str:
    return await flaky()


@hf.agent
async def fails() -> int:
    await fetch(1)
    return await parse("1")


@hf.agent
async def waits() -> list[Any]:
    await hf.sleep(0.001)
    return [await fetch(1), await hf.ask("Shall I?"), await hf.receive(GO)]


@hf.agent
async def pays() -> str:
    return await pay(1)


AGENTS = (helper, works, tries, fails, waits, pays)


async def calls(run: Run[Any]) -> dict[str, CallInfo]:
    return {call.key: call for call in calls_of(await run._store.records(run.id))}


def connected(tmp_path: Path) -> hf.Holdfast:
    failures.clear()
    return hf.connect(str(tmp_path / "s.db"), agents=AGENTS)


def test_steps_effects_children_and_branches(tmp_path: Path) -> None:
    async def go() -> None:
        async with connected(tmp_path) as app:
            run = await app.start(works())
            await run.result(timeout=60)
            found = await calls(run)
        assert {(key, call.kind, call.branch) for key, call in found.items()} == {
            ("fetch#1", "step", ""),
            ("pay#1", "effect", ""),
            ("helper#1", "child", ""),
            ("half~1/fetch#1", "step", "half~1"),
            ("half~2/fetch#1", "step", "half~2"),
        }
        for call in found.values():
            assert (call.outcome, call.is_open, call.error, call.settlements) == ("done", False, "", ())
            assert [attempt.end for attempt in call.attempts] == [AttemptEnd.done]
            assert call.ended_at is not None
            assert call.began_at <= call.ended_at
            assert (call.executed_in, call.answered) == ((1,), None)
        assert found["helper#1"].child is not None
        assert found["helper#1"].child.startswith(run.id)
        used = found["half~2/fetch#1"].usage
        assert used is not None
        assert used.as_dict() == {"models": ["m"], "input_tokens": 10, "output_tokens": 5, "cost": 0.5}
        assert found["pay#1"].usage is None

    asyncio.run(go())


def test_each_attempt_has_its_error_and_when_the_next_may_begin(tmp_path: Path) -> None:
    async def go() -> None:
        async with connected(tmp_path) as app:
            failures.extend(["second", "first"])
            run = await app.start(tries())
            await run.result(timeout=60)
            (call,) = (await calls(run)).values()
        assert [(a.number, a.end, a.error) for a in call.attempts] == [
            (1, "failed", "ValueError: first"),
            (2, "failed", "ValueError: second"),
            (3, "done", ""),
        ]
        first, second, last = call.attempts
        assert first.retry_at is not None
        assert second.retry_at is not None
        assert last.retry_at is None
        assert first.ended_at is not None
        assert first.began_at <= first.ended_at <= second.began_at
        assert first.retry_at <= second.began_at
        assert not any(attempt.is_postponed for attempt in call.attempts)
        assert call.began_at == first.began_at
        assert call.outcome == "done"

    asyncio.run(go())


def test_a_retry_opens_what_ended_the_run_and_keeps_the_rest(tmp_path: Path) -> None:
    async def go() -> None:
        async with connected(tmp_path) as app:
            failures.append("no number")
            run = await app.start(fails())
            await eventually(lambda: _is(run, Status.failed))
            failed = (await calls(run))["parse#1"]
            failures.clear()
            await run.retry()
            assert await run.result(timeout=60) == 1
            found = await calls(run)
        assert (failed.outcome, failed.is_open) == ("failed", False)
        assert "no number" in failed.error
        again = found["parse#1"]
        assert [attempt.end for attempt in again.attempts] == ["failed", "done"]
        assert (again.outcome, again.error, again.executed_in) == ("done", "", (1, 2))
        assert again.answered is None, "what ended the run was done anew"
        kept = found["fetch#1"]
        assert kept.executed_in == (1,)
        assert kept.answered is not None
        assert kept.answered.as_dict() == {"first_epoch": 2, "last_epoch": 2, "times": 1}

    asyncio.run(go())


def test_waits_are_one_call_in_however_many_processes(tmp_path: Path) -> None:
    async def go() -> None:
        async with connected(tmp_path) as app:
            run = await app.start(waits())
            await eventually(lambda: _waits_for(run, "question"))
            (question,) = await run.questions()
            open_ = (await calls(run))["hf:ask#1"]
            await question.answer(True)
            await eventually(lambda: _waits_for(run, "signal"))
            await run.send(GO, 7)
            assert await run.result(timeout=60) == [2, True, 7]
            found, info = await calls(run), await run.info()
        assert (open_.is_open, open_.outcome, open_.ended_at, open_.question) == (True, None, None, question.id)
        assert [attempt.end for attempt in open_.attempts] == ["open"]
        assert [(call.kind, call.outcome, len(call.attempts)) for call in found.values()] == [
            ("sleep", "done", 1),
            ("step", "done", 1),
            ("ask", "done", 1),
            ("receive", "done", 1),
        ]
        slept, asked = found["hf:sleep#1"], found["hf:ask#1"]
        assert slept.due_at is not None
        assert slept.ended_at is not None
        assert slept.ended_at >= slept.due_at
        assert asked.began_at == open_.began_at, "it began when the run first asked"
        step, ask = found["fetch#1"], found["hf:ask#1"]
        assert step.answered is not None
        assert step.answered.times == info.epoch - 1
        assert step.executed_in == (1,)
        assert len(ask.executed_in) > 1

    asyncio.run(go())


def test_a_verdict_is_told_with_its_evidence(tmp_path: Path) -> None:
    async def go() -> None:
        async with connected(tmp_path) as app:
            failures.append("no route")
            run = await app.start(pays())
            (doubt,) = await eventually(lambda: run.in_doubt())
            open_ = (await calls(run))["pay#1"]
            await doubt.resolve(hf.landed("paid 1"), by="eva", note="seen in the books")
            assert await run.result(timeout=60) == "paid 1"
            settled = (await calls(run))["pay#1"]
        assert (open_.is_open, open_.settlements) == (True, ())
        assert open_.held is not None
        assert open_.held["error"] == "OSError: no route"
        assert (settled.outcome, settled.held, len(settled.attempts)) == ("done", None, 1)
        (settlement,) = settled.settlements
        assert (settlement.verdict, settlement.by, settlement.actor, settlement.note, settlement.attempt) == (
            "landed",
            "person",
            "eva",
            "seen in the books",
            1,
        )
        assert settlement.evidence["cause"] == "exception"
        assert settlement.text == "in doubt (exception) → it happened, says eva: seen in the books"

    asyncio.run(go())


def test_what_did_not_happen_is_tried_again(tmp_path: Path) -> None:
    async def go() -> None:
        async with connected(tmp_path) as app:
            failures.append("no route")
            run = await app.start(pays())
            (doubt,) = await eventually(lambda: run.in_doubt())
            await doubt.resolve(hf.not_landed())
            assert await run.result(timeout=60) == "paid 1"
            call = (await calls(run))["pay#1"]
        assert [(attempt.number, attempt.end) for attempt in call.attempts] == [(1, "in_doubt"), (2, "done")]
        assert [settlement.verdict for settlement in call.settlements] == ["not_landed"]
        json.dumps(call.as_dict())

    asyncio.run(go())


async def _is(run: Run[Any], status: Status) -> bool:
    return await run.status() is status


async def _waits_for(run: Run[Any], kind: str) -> bool:
    reason = (await run.info()).reason or {}
    return any(wait["kind"] == kind for wait in reason.get("waits", ()))
