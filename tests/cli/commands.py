"""Real `python -m holdfast` processes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

SRC = Path(__file__).parents[2] / "src"

AGENTS = """
import asyncio
import os
import time

import holdfast as hf
from pydantic import BaseModel


class Query(BaseModel):
    topic: str
    depth: int = 1


@hf.step
async def think(topic: str) -> str:
    hf.usage(model="m", input_tokens=100, output_tokens=20, cost=0.01)
    return f"thoughts on {topic}"


@hf.effect
async def publish(text: str) -> int:
    with open("world.txt", "a") as world:
        world.write(text + "\\n")
    if os.environ.get("DIE_IN_EFFECT"):
        os.kill(os.getpid(), 9)
    return 91


@hf.step
async def wait_for_file(name: str) -> str:
    while not os.path.exists(name):
        await asyncio.sleep(0.01)
    return name


@hf.step
async def parse() -> None:
    if not os.path.exists("mended"):
        raise ValueError("evil \\x1b[31m escape")


@hf.agent
async def research(topic: str, n: int = 2) -> dict:
    print("the agent prints")
    thoughts = [await think(f"{topic}{i}") for i in range(n)]
    return {"thoughts": thoughts, "pr": await publish(topic)}


@hf.agent
async def echo(text: str = "hello") -> str:
    return text


@hf.agent
async def typed(query: Query, when: float | None = None) -> Query:
    return query


@hf.agent
async def failing() -> None:
    await parse()


@hf.agent
async def patient(name: str) -> str:
    await think(name)
    hf.progress(1, 2, "waiting")
    return await wait_for_file(name)
"""

BLOCKED = """
import holdfast as hf

@hf.effect
async def publish_elsewhere(text: str) -> int:
    return 1

@hf.agent
async def research(topic: str, n: int = 2) -> dict:
    return {"pr": await publish_elsewhere(topic)}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Commands:
    """Runs commands in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / ".holdfast" / "holdfast.db"
        (folder / "agents.py").write_text(AGENTS)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "COVERAGE"))}
        self.environment = {**kept, "PYTHONPATH": str(SRC), "NO_COLOR": "1", "COLUMNS": "120"}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Ended:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(stdin, timeout=60)
        return Ended(process.returncode, out, err)

    def on_terminal(self, *arguments: str, columns: int = 100, typed: str = "", **environment: str) -> Ended:
        """With a terminal for stdin, stdout and stderr; what it shows is in `out`."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            settings = self.environment | {"COLUMNS": str(columns), "TERM": "xterm"} | environment
            os.execve(sys.executable, [sys.executable, "-m", "holdfast", *arguments], settings)
        if typed:
            os.write(terminal, typed.encode())
        shown = b""
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        return Ended(os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n"), "")

    def leave_in_doubt(self, run_id: str, topic: str = "tides") -> None:
        """A run whose effect was cut off, parked as in doubt."""
        assert self("run", "agents.py:research", topic, "--id", run_id, DIE_IN_EFFECT="1").code == -signal.SIGKILL
        assert self("resume", run_id, "agents.py").code == 8

    def world(self) -> list[str]:
        """What the effects did."""
        file = self.folder / "world.txt"
        return file.read_text().splitlines() if file.exists() else []

    def damage(self, run_id: str) -> None:
        """Change a stored record behind Holdfast's back."""
        connection = apsw.Connection(str(self.store))
        connection.execute("UPDATE records SET payload = '\"forged\"' WHERE run_id = ? AND kind = 'done'", (run_id,))
        connection.close()
