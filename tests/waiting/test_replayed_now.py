"""`resume` has a run that waits replayed with the code as it is now, whatever it waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf
from tests.eventually import eventually


def version(number: int) -> hf.Agent[[str], str]:
    @hf.agent(name="publishes", version=str(number))
    async def publishes(how: str) -> str:
        if number > 1:
            return f"the code is at version {number}"
        match how:
            case "signal":
                return await hf.receive(("go", str))
            case "question":
                return str(await hf.ask("Sure?"))
            case "deadline":
                return str(await hf.ask("Sure?", timeout=86_400))
            case _:
                await hf.sleep(days=30)
                return "slept"

    return publishes


async def parked(path: Path, how: str) -> None:
    agent = version(1)
    async with hf.connect(path, agents=agent) as app:
        run = await app.start(agent(how), id="r")

        async def is_parked() -> bool:
            return await run.status() in (hf.Status.waiting, hf.Status.sleeping)

        await eventually(is_parked)


@pytest.mark.parametrize("how", ["signal", "question", "deadline", "sleep"])
@pytest.mark.parametrize("who", ["worker", "client", "app.resume", "hf.run"])
def test_resume_has_a_run_that_waits_replayed_with_the_new_code(tmp_path: Path, how: str, who: str) -> None:
    path, new = tmp_path / "s.db", version(2)
    asyncio.run(parked(path, how))
    if who == "hf.run":
        assert hf.run(new(how), id="r", url=path) == "the code is at version 2"
        return

    async def main() -> None:
        async with hf.connect(path, agents=new) as worker, hf.connect(path) as client:
            if who == "app.resume":
                await worker.resume("r")
            else:
                await (client if who == "client" else worker).get("r").resume(by="ada", note="deployed")
            assert await worker.get("r").result(timeout=60) == "the code is at version 2"

    asyncio.run(main())


@pytest.mark.parametrize("who", ["worker", "client"])
def test_code_that_still_waits_waits_on(tmp_path: Path, who: str) -> None:
    path = tmp_path / "s.db"
    asyncio.run(parked(path, "question"))

    async def main() -> None:
        async with hf.connect(path, agents=version(1)) as worker, hf.connect(path) as client:
            asked = [question.id for question in await client.questions()]
            run = (client if who == "client" else worker).get("r")
            epoch = (await run.info()).epoch
            await run.resume()

            async def is_back() -> bool:
                info = await run.info()
                return info.epoch > epoch + (who == "client") and info.status is hf.Status.waiting

            await eventually(is_back)
            assert [question.id for question in await client.questions()] == asked
            await (await client.questions())[0].answer(True)
            assert await run.result(timeout=60) == "True"

    asyncio.run(main())


def test_a_run_that_is_about_to_leave_memory_is_resumed_all_the_same(tmp_path: Path) -> None:
    lives = 0
    door = asyncio.Event()

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await door.wait()  # holds up the end of an execution that has been given up

    @hf.agent
    async def lingers() -> str:
        nonlocal lives
        lives += 1
        if lives > 1:
            return "again"
        task = asyncio.create_task(linger())
        await asyncio.sleep(0)
        went = await hf.receive(("go", str))
        task.cancel()
        return went

    async def main() -> None:
        async with hf.connect(tmp_path / "s.db", agents=lingers) as app:
            run = await app.start(lingers())

            async def is_given_up() -> bool:
                return await run.status() is hf.Status.waiting

            await eventually(is_given_up)
            assert app._here.local(run.id) is not None
            resuming = asyncio.create_task(run.resume())
            await asyncio.wait({resuming}, timeout=0.05)
            door.set()
            await resuming
            assert await run.result(timeout=60) == "again"

    asyncio.run(main())
