"""What a person does to a run from outside, during a life: each waits until it makes sense, and is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import holdfast as hf
from holdfast.base.clock import now_us
from tests.crash.agents import World
from tests.crash.driving import LONGEST_S, RUN, Act, Driver


async def run_of(driver: Driver, agent: str | None) -> hf.RunInfo | None:
    """The run that the test started, or the first one of an agent."""
    if agent is None:
        return await driver.info()
    found = await driver.app.runs(agent=agent, limit=100)
    return found[-1] if found else None


async def awaiting(driver: Driver, what: str, agent: str | None = None) -> hf.Run[Any]:
    """Wait until a run has left memory and waits for this signal, or for something of this kind."""

    async def waits() -> str | None:
        info = await run_of(driver, agent)
        if info is None or info.status not in (hf.Status.waiting, hf.Status.sleeping):
            return None
        waits = (info.reason or {}).get("waits", [])
        return info.id if any(what in (each["kind"], each.get("name")) for each in waits) else None

    return driver.app.get(await driver.until(waits, f"{agent or RUN} waits for {what}"))


def send(signal: hf.Signal[Any] | str, value: object, *, to: str | None = None, late: bool = True) -> Act:
    """Send a signal, when it is waited for or (`late=False`) as soon as the run is there."""
    name = signal if isinstance(signal, str) else signal.name

    async def act(driver: Driver) -> None:
        run = await awaiting(driver, name, to) if late else driver.run
        dedup = f"{name}-{len(driver.said)}"

        async def again() -> None:
            with suppress(hf.RunFinished):
                assert not await run.send(signal, value, dedup=dedup), f"{dedup} was taken a second time"

        assert await driver.say(lambda: run.send(signal, value, dedup=dedup), again) is True

    return act


def answer(prompt: str, value: object, *, by: str = "ada", note: str = "", late: bool = False) -> Act:
    """Answer a question (None: decline it) when it is asked, or when the run has left memory."""

    async def act(driver: Driver) -> None:
        async def asked() -> list[hf.Question]:
            return [each for each in await driver.app.questions() if each.prompt == prompt]

        (question,) = await driver.until(asked, f"somebody asks {prompt!r}")
        if late:
            await awaiting(driver, "question", (await driver.app.get(question.run_id).info()).agent)

        async def decide() -> None:
            if value is None:
                await question.decline(by=by, note=note)
            else:
                await question.answer(value, by=by, note=note)

        async def again() -> None:
            try:
                await decide()
            except hf.AlreadyDecided as error:
                if error.by == by:
                    return
                raise
            raise AssertionError(f"{prompt} was decided a second time")

        await driver.say(decide, again)

    return act


async def pause(driver: Driver) -> None:
    await driver.run.pause(by="ada", note="one moment")

    async def is_paused() -> bool:
        info = await driver.info()
        return info is not None and (info.status is hf.Status.paused or info.status.is_final)

    await driver.until(is_paused, "it is paused")


async def resume(driver: Driver) -> None:
    await driver.run.resume(by="ada")


def cancel(*, kill: bool = False) -> Act:
    async def act(driver: Driver) -> None:
        driver.seen.append(await driver.say(lambda: driver.run.cancel(by="ada", kill=kill, timeout=LONGEST_S)))

    return act


def interrupt(message: object) -> Act:
    """Interrupt the run, once a worker has said that it can be."""

    async def act(driver: Driver) -> None:
        async def is_known() -> bool:
            info = await driver.info()
            return info is not None and info.status is not hf.Status.queued

        await driver.until(is_known, "a worker has it")
        driver.seen.append(await driver.run.interrupt(message, by="ada", timeout=LONGEST_S / 2))

    return act


def at_once(*acts: Act) -> Act:
    """Several persons, or one that waits for a reply while another one acts."""

    async def act(driver: Driver) -> None:
        await asyncio.gather(*(each(driver) for each in acts))

    return act


async def wait_until_due(driver: Driver) -> None:
    """Wait until the time has come that a paused run would have woken up at; nothing, if it did not sleep yet."""
    info = await driver.info()
    assert info is not None
    due_us = (info.reason or {}).get("wake_at")

    async def is_due() -> bool:
        return due_us is None or now_us() > due_us

    await driver.until(is_due, "its time has come")


def wait_done(agent: str) -> Act:
    async def act(driver: Driver) -> None:
        async def is_done() -> bool:
            info = await run_of(driver, agent)
            return info is not None and info.status is hf.Status.done

        await driver.until(is_done, f"{agent} is done")

    return act


def wait_for(what: str, *, agent: str | None = None) -> Act:
    async def act(driver: Driver) -> None:
        await awaiting(driver, what, agent)

    return act


def wait_world(is_so: Callable[[World], bool]) -> Act:
    """Wait until something has happened outside."""

    async def act(driver: Driver) -> None:
        async def look() -> bool:
            return is_so(driver.world)

        await driver.until(look, "it happened")

    return act
