"""Commands in a folder: processes of their own, most of them forked from one that has Holdfast imported."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from holdfast import cli
from holdfast.cli.failure import report
from holdfast.cli.setup import Setup
from tests.forkserver import Forked, ForkServer

SRC = Path(__file__).parents[2] / "src"

AGENTS = """
import asyncio
import os

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


def _enter(folder: str) -> None:
    """Be as a process is that was started in a folder."""
    os.chdir(folder)
    sys.path[0] = folder


def run_command(folder: str, arguments: list[str]) -> None:
    """Do what `python -m holdfast` does."""
    _enter(folder)
    sys.argv[1:] = arguments
    cli.main()


def run_batch(folder: str) -> None:
    """Many commands in one process, one after the other; a line with NULs and its exit code behind each."""
    _enter(folder)
    for arguments in json.loads(Path("batch.json").read_text()):
        setup = Setup()
        try:
            code = cli.cli.main(arguments, prog_name="holdfast", standalone_mode=False, obj=setup)
        except (Exception, KeyboardInterrupt) as error:
            code = report(error, setup)
        sys.stdout.flush()
        print(f"\0{code if isinstance(code, int) else 0}\0", file=sys.stderr, flush=True)
    sys.stdout.flush()


def run_code(folder: str, code: str) -> None:
    """Do what `python -c` does."""
    _enter(folder)
    exec(code, {"__name__": "__main__"})


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

    def __init__(self, folder: Path, forkserver: ForkServer, *, writes_agents: bool = True) -> None:
        self.folder = folder
        self._forkserver = forkserver
        self.store = folder / ".holdfast" / "holdfast.db"
        if writes_agents:
            (folder / "agents.py").write_text(AGENTS)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "COVERAGE"))}
        self.environment = {**kept, "PYTHONPATH": str(SRC), "NO_COLOR": "1", "COLUMNS": "120"}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A command that is started as users start it."""
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
        return self._ended(run_command, stdin, environment, arguments=arguments)

    def execute(self, code: str) -> Ended:
        """Python code, in the folder."""
        return self._ended(run_code, "", {}, code=code)

    def on_terminal(self, *arguments: str, columns: int = 100, typed: str = "", **environment: str) -> Ended:
        """With a terminal for stdin, stdout and stderr; what it shows is in `out`."""
        terminal, theirs = os.openpty()
        settings = {"COLUMNS": str(columns), "TERM": "xterm", **environment}
        process = self._fork(run_command, [theirs], settings, arguments=arguments)
        shown = self._shown(terminal, theirs, typed)
        return Ended(process.wait(60), shown, "")

    def batch(self, batch: list[list[str]], *, is_terminal: bool) -> list[tuple[int, str]]:
        """Many commands, in one process: the exit code of each, and what it shows."""
        (self.folder / "batch.json").write_text(json.dumps(batch))  # too long for an order
        if is_terminal:
            terminal, theirs = os.openpty()
            settings = {"COLUMNS": "100", "TERM": "xterm"}
            process = self._fork(run_batch, [theirs], settings)
            shown = self._shown(terminal, theirs, "")
            assert process.wait(60) == 0, shown
        else:
            with open(os.memfd_create("shown"), "r+", errors="surrogateescape") as file, open(os.devnull) as nothing:
                process = self._fork(run_batch, [nothing.fileno(), file.fileno(), file.fileno()], {})
                assert process.wait(600) == 0
                file.seek(0)
                shown = file.read()
        parts = re.split("\0(-?\\d+)\0\n", shown)
        return [(int(code), text) for text, code in zip(parts[::2], parts[1::2], strict=False)]

    @staticmethod
    def _shown(terminal: int, theirs: int, typed: str) -> str:
        os.close(theirs)
        os.write(terminal, typed.encode())
        shown = b""
        with contextlib.suppress(OSError):  # it is closed
            while part := os.read(terminal, 65536):
                shown += part
        os.close(terminal)
        return shown.decode().replace("\r\n", "\n")

    def _fork(
        self, call: Callable[..., None], streams: list[int], environment: Mapping[str, str], **more: Any
    ) -> Forked:
        env = {**self.environment, **environment}
        return self._forkserver.start(call, streams=streams, env=env, only=True, folder=str(self.folder), **more)

    def _ended(self, call: Callable[..., None], stdin: str, environment: Mapping[str, str], **more: Any) -> Ended:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(os.memfd_create(name), "r+")) for name in ("in", "out", "err")]
            files[0].write(stdin)
            files[0].seek(0)
            code = self._fork(call, [file.fileno() for file in files], environment, **more).wait(60)
            for file in files:
                file.seek(0)
            return Ended(code, files[1].read(), files[2].read())

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
