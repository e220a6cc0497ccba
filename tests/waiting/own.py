"""Agents whose code waits by itself, beside its durable calls, and ends when its own timer says so."""

from __future__ import annotations

import asyncio
import contextvars

import anyio

import holdfast as hf

LATE = 0.4  #: long enough for a run to leave memory, if it did
WEEK = 7 * 86_400.0


@hf.step
async def look() -> str:
    return "seen"


@hf.agent
async def never() -> str:
    return str(await hf.receive(("never", str)))


async def _timeout_around_a_sleep() -> None:
    async with asyncio.timeout(LATE):
        await hf.sleep(WEEK)


async def _timeout_around_a_signal() -> None:
    async with asyncio.timeout(LATE):
        await hf.receive(("never", str))


async def _timeout_around_a_question() -> None:
    async with asyncio.timeout(LATE):
        await hf.ask("Well?")


async def _timeout_around_a_child() -> None:
    async with asyncio.timeout(LATE):
        await never()


async def _timeout_around_a_result() -> None:
    child = await hf.start(never())
    async with asyncio.timeout(LATE):
        await child.result()


async def _timeout_around_branches() -> None:
    async with asyncio.timeout(LATE), asyncio.TaskGroup() as group:
        group.create_task(hf.sleep(WEEK))
        group.create_task(hf.receive(("never", str)))


async def _timeout_that_was_moved() -> None:
    async with asyncio.timeout(WEEK) as limit:
        await look()
        limit.reschedule(asyncio.get_running_loop().time() + LATE)
        await hf.sleep(WEEK)


async def _wait_for() -> None:
    await asyncio.wait_for(hf.receive(("never", str)), LATE)


async def _wait_for_a_question() -> None:
    await asyncio.wait_for(hf.ask("Well?"), LATE)


async def _wait_for_branches() -> None:
    await asyncio.wait_for(asyncio.gather(hf.sleep(WEEK), hf.receive(("never", str))), LATE)


async def _wait() -> None:
    task = asyncio.create_task(hf.sleep(WEEK))
    _, pending = await asyncio.wait({task}, timeout=LATE)
    assert pending
    raise TimeoutError


async def _fail_after() -> None:
    with anyio.fail_after(LATE):
        await hf.sleep(WEEK)


async def _move_on_after() -> None:
    with anyio.move_on_after(LATE) as scope:
        await hf.receive(("never", str))
    if scope.cancelled_caught:
        raise TimeoutError


async def _group_of_anyio_with_a_deadline() -> None:
    async with anyio.create_task_group() as group:
        group.cancel_scope.deadline = anyio.current_time() + LATE
        group.start_soon(hf.sleep, WEEK)
    if group.cancel_scope.cancelled_caught:
        raise TimeoutError


async def _sleep_in_a_branch() -> None:
    waiting = asyncio.create_task(hf.sleep(WEEK))
    await asyncio.sleep(LATE)
    waiting.cancel()
    raise TimeoutError


async def _naps_in_a_branch() -> None:
    waiting = asyncio.create_task(hf.sleep(WEEK))
    for _ in range(8):
        await asyncio.sleep(LATE / 8)
    waiting.cancel()
    raise TimeoutError


async def _event_that_a_branch_sets() -> None:
    event = asyncio.Event()

    async def poke() -> None:
        await asyncio.sleep(LATE)
        event.set()

    asyncio.create_task(poke())  # noqa: RUF006
    asyncio.create_task(hf.sleep(WEEK))  # noqa: RUF006
    await event.wait()
    raise TimeoutError


async def _future_that_a_callback_sets() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_later(LATE, future.set_result, None)
    asyncio.create_task(hf.sleep(WEEK))  # noqa: RUF006
    await future
    raise TimeoutError


async def _queue_that_a_chain_of_callbacks_fills() -> None:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str] = asyncio.Queue()
    loop.call_later(LATE / 2, lambda: loop.call_later(LATE / 2, queue.put_nowait, "item"))
    asyncio.create_task(hf.sleep(WEEK))  # noqa: RUF006
    await queue.get()
    raise TimeoutError


async def _cancelled_by_a_callback() -> None:
    task = asyncio.create_task(hf.sleep(WEEK))
    asyncio.get_running_loop().call_later(LATE, task.cancel)
    await asyncio.wait({task})
    raise TimeoutError


async def _cancelled_by_a_callback_without_a_context() -> None:
    task = asyncio.create_task(hf.sleep(WEEK))
    asyncio.get_running_loop().call_later(LATE, task.cancel, context=contextvars.Context())
    await asyncio.wait({task})
    raise TimeoutError


async def _timeout_in_a_branch() -> None:
    async def branch() -> None:
        async with asyncio.timeout(LATE):
            await hf.sleep(WEEK)

    await asyncio.gather(branch(), hf.receive(("never", str)))


async def _beside_many_that_are_due_at_once() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(50):
        loop.call_later(0, int)
        loop.call_at(loop.time() - 1, int)
    async with asyncio.timeout(LATE):
        await hf.sleep(WEEK)


async def _two_timers_and_the_later_one_counts() -> None:
    waiting = asyncio.create_task(hf.sleep(WEEK))
    async with asyncio.timeout(LATE):
        try:
            async with asyncio.timeout(LATE / 2):
                await waiting
        except TimeoutError:
            await hf.receive(("never", str))


_ALL = (
    _timeout_around_a_sleep,
    _timeout_around_a_signal,
    _timeout_around_a_question,
    _timeout_around_a_child,
    _timeout_around_a_result,
    _timeout_around_branches,
    _timeout_that_was_moved,
    _wait_for,
    _wait_for_a_question,
    _wait_for_branches,
    _wait,
    _fail_after,
    _move_on_after,
    _group_of_anyio_with_a_deadline,
    _sleep_in_a_branch,
    _naps_in_a_branch,
    _event_that_a_branch_sets,
    _future_that_a_callback_sets,
    _queue_that_a_chain_of_callbacks_fills,
    _cancelled_by_a_callback,
    _cancelled_by_a_callback_without_a_context,
    _timeout_in_a_branch,
    _beside_many_that_are_due_at_once,
    _two_timers_and_the_later_one_counts,
)
WAYS = {way.__name__.strip("_").replace("_", " "): way for way in _ALL}


@hf.agent
async def waits(way: str) -> str:
    try:
        await WAYS[way]()
    except TimeoutError:
        return f"{await look()}, timed out"
    return "not timed out"


@hf.agent
async def hangs(seconds: float) -> str:
    """A plain timeout around a wait for somebody who does not come."""
    try:
        async with asyncio.timeout(seconds):
            return await hf.receive(("go", str))
    except TimeoutError:
        return "timed out"
