"""Agents that wait for people, and a folder with a worker for them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator

from tests.cli.commands import Commands
from tests.eventually import eventually_now

AGENTS = """
import asyncio
import os
from datetime import timedelta

import holdfast as hf
from pydantic import BaseModel, Field


class Order(BaseModel):
    title: str = Field(description="what it is called")
    pages: int
    is_urgent: bool = False


approved = hf.Signal("approved", bool)


@hf.agent(signals=[approved])
async def publish(text: str = "tides") -> str:
    return "published" if await hf.receive(approved) else "dropped"


@hf.agent
async def sure() -> str:
    return f"sure: {await hf.ask('Sure?', show={'page': 3})}"


@hf.agent
async def checked() -> str:
    said = await hf.ask("Publish it?", hf.Approval)
    return f"{said.ok} {said.by} {said.note}"


@hf.agent
async def place() -> str:
    return await hf.ask("Where to?", options=["staging", "production"])


@hf.agent
async def order() -> dict:
    return (await hf.ask("What shall I order?", Order)).model_dump()


@hf.agent
async def hurried() -> bool:
    return await hf.ask("Still there?", timeout=timedelta(days=1, hours=12))


@hf.agent
async def letter() -> str:
    return await hf.ask("Send this?", draft="Dear all,")


@hf.agent
async def careful() -> str:
    try:
        return str(await hf.ask("Go on?"))
    except hf.Declined as error:
        return f"no: {error}"


@hf.agent
async def sleeper() -> str:
    await hf.sleep(hours=3)
    return "awake"


@hf.step
async def wait_for_file(name: str) -> str:
    while not os.path.exists(name):
        await asyncio.sleep(0.01)
    return name


@hf.agent
async def patient(name: str) -> str:
    hf.progress(1, 4, "waiting")
    return await wait_for_file(name)


@hf.agent
async def talkative(name: str) -> str:
    return await wait_for_file(name)


@talkative.on_interrupt
async def hear(message: str) -> str:
    return f"heard {message}"


@hf.step
async def fail() -> None:
    if not os.path.exists("mended"):
        raise ValueError("broken")


@hf.agent
async def failing() -> str:
    await fail()
    return "mended"
"""


def prepare(hf: Commands) -> Commands:
    (hf.folder / "waiting.py").write_text(AGENTS)
    return hf


def park(hf: Commands, agent: str, run_id: str, *arguments: str) -> None:
    """A run that waits for somebody, with no process."""
    ended = hf("run", f"waiting.py:{agent}", *arguments, "--id", run_id, "--timeout", "60")
    assert ended.code == 7, (ended.code, ended.err)


def status(hf: Commands, run_id: str) -> str:
    found: str = hf("show", run_id, "--json").json["run"]["status"]
    return found


def wait_status(hf: Commands, run_id: str, wanted: str) -> None:
    eventually_now(lambda: status(hf, run_id) == wanted)


def script(hf: Commands, code: str) -> str:
    """Execute something with an open `app` in the folder."""
    body = "\n".join(f"        {line}" for line in code.strip().splitlines())
    text = (
        "import asyncio\nimport holdfast as hf\nimport waiting\nfrom waiting import *\n"
        f"async def main():\n    async with hf.connect() as app:\n{body}\nasyncio.run(main())\n"
    )
    ended = hf.execute(text)
    assert ended.code == 0, ended.err
    return ended.out


@contextlib.contextmanager
def worker(hf: Commands) -> Iterator[subprocess.Popen[str]]:
    """A worker for these agents."""
    process = hf.start("worker", "waiting.py")
    try:
        eventually_now(lambda: process.poll() is not None or [w for w in _workers(hf) if w["alive"]])
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()


def _workers(hf: Commands) -> list[dict[str, object]]:
    ended = hf("workers", "--json")
    return ended.json["items"] if ended.code == 0 else []
