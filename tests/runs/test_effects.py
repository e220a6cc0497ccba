"""Effects, sagas, children and timeouts inside runs, in one process; the crash tests kill processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.model import Kind
from tests.runs.journal import load, records_of

DONE: list[Any] = []


class Refused(Exception):
    pass


@hf.effect(raises=(Refused,), retry_on=(ConnectionRefusedError,), retries=hf.Retry(2, first=0.001), settle=0)
async def post(what: str) -> str:
    DONE.append(what)
    match what:
        case "refused":
            raise Refused("no")
        case "down":
            raise ConnectionRefusedError
        case "lost":
            raise ConnectionResetError("who knows")
        case "lock":
            return asyncio.Lock()  # type: ignore[return-value]
    return f"posted {what}"


@hf.agent
async def posts(what: str) -> str:
    try:
        return await post(what)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_the_intent_is_durable_before_the_body_and_the_key_is_stable(tmp_path: Path) -> None:
    keys: list[str] = []

    @hf.effect
    async def sees() -> None:
        keys.append(hf.this_step().idempotency_key)

    @hf.agent
    async def agent() -> None:
        await sees()

    url = str(tmp_path / "s.db")
    hf.run(agent(), id="r", url=url)
    intent = next(r for r in records_of(url, "r") if r.kind == Kind.intent)
    assert keys[0] in (intent.payload or "")


def test_declared_exceptions_are_failures_and_retried_only_if_declared(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    DONE.clear()
    assert hf.run(posts("refused"), url=url) == "Refused: no"
    assert DONE == ["refused"]
    DONE.clear()
    assert hf.run(posts("down"), url=url).startswith("ConnectionRefusedError")
    assert DONE == ["down"] * 3


def test_an_undeclared_exception_proves_nothing_and_needs_a_person(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    DONE.clear()
    with pytest.raises(hf.NeedsHuman, match="post#1") as parked:
        hf.run(posts("lost"), id="r", url=url)
    assert "in-doubt" in parked.value.command
    assert load(url, "r")[0].status is hf.Status.in_doubt

    async def settle(verdict: Any) -> None:
        async with hf.connect(url) as app:
            (doubt,) = await app.in_doubt()
            assert (doubt.run_id, doubt.key) == ("r", "post#1")
            await doubt.resolve(verdict, by="ana", note="looked")
            with pytest.raises(hf.AlreadySettled):
                await doubt.resolve(verdict)

    asyncio.run(settle(hf.landed("seen")))
    assert hf.run(posts("lost"), id="r", url=url) == "seen"
    assert DONE == ["lost"]
    settled = next(r for r in records_of(url, "r") if r.kind == Kind.settled)
    assert '"ana"' in (settled.payload or "")


def test_a_result_that_does_not_fit_the_type_is_not_taken_from_a_person(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with pytest.raises(hf.NeedsHuman):
        hf.run(posts("lost"), id="r", url=url)

    async def settle(verdict: Any) -> None:
        async with hf.connect(url) as app:
            (doubt,) = await app.in_doubt()
            await doubt.resolve(verdict)

    asyncio.run(settle(hf.landed(17)))
    with pytest.raises(hf.NeedsHuman):
        hf.run(posts("lost"), id="r", url=url)
    asyncio.run(settle(ValueError("give up")))
    assert hf.run(posts("lost"), id="r", url=url) == "ValueError: give up"


def test_a_result_that_cannot_be_stored_keeps_the_effect_as_happened(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    DONE.clear()
    assert hf.run(posts("lock"), id="r", url=url).startswith("ResultNotStored")
    assert hf.run(posts("lock"), id="r", url=url).startswith("ResultNotStored")
    assert DONE == ["lock"]
    assert [r.kind for r in records_of(url, "r") if r.key == "post#1"] == [Kind.intent, Kind.unstored]


def test_an_effect_in_a_step_body_raises_and_says_where_to_put_it(tmp_path: Path) -> None:
    @hf.step
    async def wrong() -> str:
        return await post("inside")

    @hf.agent
    async def agent() -> str:
        return await wrong()

    with pytest.raises(hf.RunFailed, match="inside the body of wrong"):
        hf.run(agent(), url=str(tmp_path / "s.db"))


def test_a_late_verdict_of_verify_waits_for_the_settle_time(tmp_path: Path) -> None:
    looked: list[float] = []

    @hf.effect(settle=0.3, retries=1)
    async def cut() -> str:
        looked.append(time.monotonic())
        if hf.this_step().attempt == 1:
            raise ConnectionResetError
        return "second"

    @cut.verify
    async def look() -> hf.Verdict[str]:
        looked.append(time.monotonic())
        return hf.not_landed()

    @hf.agent
    async def agent() -> str:
        return await cut()

    assert hf.run(agent(), url=str(tmp_path / "s.db")) == "second"
    assert len(looked) == 4
    assert looked[3] - looked[0] >= 0.3


@hf.effect(on_doubt="fail")
async def book(what: str) -> str:
    DONE.append(f"book {what}")
    if what == "lost":
        raise OSError("cut")
    return what


@book.undo
async def unbook(result: str | None, what: str) -> None:
    assert hf.this_step().undoes
    DONE.append(f"unbook {what} {result}")


@hf.step
async def no_room() -> None:
    raise ValueError("no room")


@hf.agent
async def trip(last: str) -> str:
    try:
        async with hf.saga():
            await book("flight")
            async with hf.saga():
                await book("car")
            if last == "lost":
                await book("lost")
            elif last == "ok":
                return "booked"
            await no_room()
    except (ValueError, hf.EffectInDoubt) as error:
        return type(error).__name__
    return "never"


def test_a_saga_undoes_in_reverse_order_of_outcome(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    DONE.clear()
    assert hf.run(trip("fail"), url=url) == "ValueError"
    assert DONE == ["book flight", "book car", "unbook car car", "unbook flight flight"]
    DONE.clear()
    assert hf.run(trip("ok"), url=url) == "booked"
    assert DONE == ["book flight", "book car"]


def test_a_saga_undoes_what_may_have_happened_too(tmp_path: Path) -> None:
    DONE.clear()
    assert hf.run(trip("lost"), url=str(tmp_path / "s.db")) == "EffectInDoubt"
    assert DONE[3:] == ["unbook lost None", "unbook car car", "unbook flight flight"]


@hf.effect
async def rent(what: str) -> str:
    return what


@rent.undo
async def give_back(result: str | None, what: str) -> None:
    DONE.append(f"give back {what}")
    if what == "boat":
        raise OSError("sunk")


@hf.agent
async def holiday() -> list[str]:
    try:
        async with hf.saga():
            await rent("car")
            await rent("boat")
            await no_room()
    except ExceptionGroup as group:
        return [*(str(error) for error in group.exceptions), type(group.__context__).__name__]
    return []


def test_an_undo_that_fails_does_not_keep_the_others_from_being_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf.Retry, "_delay_s", lambda self, failed: 0.001)
    DONE.clear()
    assert hf.run(holiday(), url=str(tmp_path / "s.db")) == ["sunk", "ValueError"]
    assert DONE == ["give back boat"] * 4 + ["give back car"]


@hf.agent
async def child(n: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return n * 2


@hf.agent
async def parent(n: int) -> list[Any]:
    doubled = await asyncio.gather(child(n), child(n + 1))
    side = await hf.start(child(100))
    failed = ""
    try:
        await child(-1)
    except hf.RunFailed as error:
        failed = type(error.__cause__).__name__
    async with asyncio.TaskGroup() as group:
        task = group.create_task(child(7))
    return [*doubled, failed, await side.result(), task.result()]


def test_children_are_runs_of_their_own_and_start_once(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    assert hf.run(parent(1), id="p", url=url) == [2, 4, "ValueError", 200, 14]
    assert hf.run(parent(1), id="p", url=url) == [2, 4, "ValueError", 200, 14]

    async def count() -> int:
        async with hf.connect(url) as app:
            return len(await app.runs(agent="child"))

    assert asyncio.run(count()) == 5


def test_awaiting_an_agent_outside_of_a_run_says_how_to_run_it() -> None:
    async def go() -> None:
        await child(1)

    with pytest.raises(hf.NotInRun, match=r"hf\.run\(child"):
        asyncio.run(go())


def test_durable_verbs_outside_of_a_run_raise() -> None:
    async def go() -> None:
        async with hf.timeout(1):
            pass

    nothing = hf.race()  # type: ignore[call-overload]
    for attempt in (go(), nothing, hf.start(child(1))):
        with pytest.raises(hf.NotInRun):
            asyncio.run(attempt)
    with pytest.raises(hf.NotInRun):
        hf.this_step()
    assert hf.now().tzinfo is not None
    assert hf.uuid4() != hf.uuid4()


@hf.agent(timeout=0.05)
async def endless() -> None:
    await asyncio.sleep(30)


def test_an_agent_can_have_a_time_limit(tmp_path: Path) -> None:
    with pytest.raises(hf.RunFailed, match="TimeoutError"):
        hf.run(endless(), url=str(tmp_path / "s.db"))


def test_an_open_effect_that_the_code_no_longer_asks_for_blocks_the_end_of_the_run(tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with pytest.raises(hf.NeedsHuman):
        hf.run(posts("lost"), id="r", url=url)

    @hf.agent(name="posts")
    async def without(what: str) -> str:
        return what

    with pytest.raises(hf.RunBlocked, match="post#1") as blocked:
        hf.run(without("lost"), id="r", url=url)
    assert blocked.value.reason["recorded"][0]["open"] is True

    async def settle() -> None:
        async with hf.connect(url) as app:
            (doubt,) = await app.get("r").in_doubt()
            await doubt.resolve(hf.not_landed(), note="not in the outbox")

    asyncio.run(settle())
    assert hf.run(without("lost"), id="r", url=url) == "lost"
