"""What the demo does: one mail server, four processes with the same agent, three of them killed.

Two are killed from here, in the middle of a model call that gets no answer, once the journal has what it should have by
then; the third kills itself at a crash point (`HOLDFAST_FAULT`), because nobody outside could hit the moment between an
effect and its record. Nothing depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any, Protocol

from holdfast.base.config import Settings
from holdfast.errors import HoldfastError, StoreError
from holdfast.history.receipts import receipts_of
from holdfast.history.timeline import TimelineItem, timeline_of
from holdfast.model import OUTCOMES, Kind, Record, RunId, RunRow
from holdfast.store import open_store

RUN_ID = RunId("tide-report")
_HERE = Path(__file__).parent
_LOOK_S = 0.03
_PATIENCE_S = 30.0
_FAST = 0.15


class DemoFailed(HoldfastError):
    """The demo could not be played to its end."""


@dataclass(frozen=True, slots=True)
class Act:
    """One process: where it is to end."""

    where: str
    cut_off: str = ""  #: the call in whose body it is killed, which gets no answer
    recorded: frozenset[str] = frozenset()  #: what the journal must have before that
    fault: str = ""  #: or the crash point at which it kills itself


#: `save` is the first effect of the third process, the first mail the second.
ACTS = (
    Act(
        "between parallel branches",
        cut_off="investigate~2/digest#1",
        recorded=frozenset({"investigate~1/digest#1", "investigate~3/digest#1"}),
    ),
    Act("inside a step", cut_off="write#1", recorded=frozenset({"investigate~2/digest#1"})),
    Act("after the mail left, before that was recorded", fault="effect.after_body:kill@2"),
    Act(""),
)


@dataclass(frozen=True, slots=True)
class Performance:
    """An act that is over: the process that played it."""

    act: Act
    pid: int
    returncode: int


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one demo."""

    folder: Path

    @property
    def db(self) -> Path:
        return self.folder / "holdfast.db"

    @property
    def tally(self) -> Path:
        return self.folder / "tally.jsonl"

    @property
    def mailbox(self) -> Path:
        return self.folder / "mailbox.jsonl"

    @property
    def report(self) -> Path:
        return self.folder / "report.md"


class View(Protocol):
    """Where the story is told."""

    def line(self, mark: str, what: str, text: str = "", *, style: str = "") -> None:
        """Something happened."""
        ...

    def now(self, text: str) -> None:
        """What is going on at the moment."""
        ...


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that others append to."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


async def journal_of(places: Places) -> tuple[RunRow, list[Record]] | None:
    """The run as it is on disk; None if there is none yet. Opened for each look, so that nobody has it at a kill."""
    if not places.db.exists():
        return None
    store = open_store(str(places.db), settings=Settings())
    try:
        await store.open(read_only=True)
        return await store.load(RUN_ID)
    except StoreError:  # its first process is still making it
        return None
    finally:
        await store.close()


class Story:
    """Plays the acts, one after the other."""

    def __init__(self, places: Places, view: View, *, is_fast: bool) -> None:
        self._places = places
        self._view = view
        self._pace = _FAST if is_fast else 1.0
        self._environment: dict[str, str] = {}

    async def play(self) -> list[Performance]:
        """All of it; the processes as they ended, in order."""
        shutil.copy(_HERE / "research.py", self._places.folder)
        async with self._mail_server():
            ended = []
            for number, act in enumerate(ACTS, start=1):
                ended.append(await self._act(number, act))
                await asyncio.sleep(0.5 * self._pace)
            return ended

    @asynccontextmanager
    async def _mail_server(self) -> AsyncIterator[None]:
        command = ("-I", str(_HERE / "mailserver.py"), str(self._places.mailbox))
        async with self._process("mailserver", command, stdin=asyncio.subprocess.PIPE, env=dict(os.environ)) as process:
            assert process.stdout is not None
            said = await asyncio.wait_for(process.stdout.readline(), _PATIENCE_S)
            if not said:
                raise DemoFailed(f"The mail server did not start: {self._errors('mailserver')}")
            ports = json.loads(said)
            self._view.line("✉", "mail server", f"pid {process.pid}, SMTP on 127.0.0.1:{ports['smtp']}")
            self._environment = self._agent_environment(ports)
            yield

    def _agent_environment(self, ports: dict[str, int]) -> dict[str, str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        root = str(_HERE.parent.parent)
        if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        return environment | {
            "HOLDFAST_URL": str(self._places.db),
            "HOLDFAST_DEMO_PACE": str(self._pace),
            "HOLDFAST_DEMO_TALLY": str(self._places.tally),
            "HOLDFAST_DEMO_SMTP_PORT": str(ports["smtp"]),
            "HOLDFAST_DEMO_HTTP_PORT": str(ports["http"]),
        }

    @asynccontextmanager
    async def _process(
        self, name: str, command: Sequence[str], *, stdin: int, env: dict[str, str]
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process that ends with the block. In a session of its own: Ctrl-C is for the demo, which then ends it."""
        with self._places.folder.joinpath(f"{name}.stderr").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                cwd=self._places.folder,
                env=env,
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _act(self, number: int, act: Act) -> Performance:
        environment = self._environment | {"HOLDFAST_DEMO_STALL": act.cut_off, "HOLDFAST_FAULT": act.fault}
        name = f"process-{number}"
        async with self._process(name, ("research.py",), stdin=asyncio.subprocess.DEVNULL, env=environment) as process:
            what = "starts" if number == 1 else "resumes"
            mark = "▶" if number == 1 else "↺"
            self._view.line(mark, f"process {number} {what}", f"pid {process.pid}", style="green")
            self._view.now("python research.py")
            watch = Watch(self._places, self._view, pid=process.pid, number=number)
            began = asyncio.get_running_loop().time()
            while process.returncode is None:
                await watch.look()
                if act.cut_off and act.cut_off in watch.begun and act.recorded <= watch.recorded:
                    await asyncio.sleep(0.8 * self._pace)  # long enough for a reader to see what it is at
                    process.send_signal(SIGKILL)
                    await process.wait()
                elif asyncio.get_running_loop().time() - began > _PATIENCE_S:
                    raise DemoFailed(f"Process {number} got no further in {_PATIENCE_S:.0f} s: {self._errors(name)}")
                else:
                    await asyncio.sleep(_LOOK_S)
            await watch.look()
        self._view.now("")
        returncode = process.returncode
        if act.where and returncode == -SIGKILL:
            self._view.line("✖", f"SIGKILL pid {process.pid}", act.where, style="red")
        elif returncode == 0 and process.stdout is not None:
            self._view.line("✔", "done", (await process.stdout.read()).decode().strip(), style="green")
        if returncode != (-SIGKILL if act.where else 0):
            raise DemoFailed(f"Process {number} ended with {returncode}: {self._errors(name)}")
        return Performance(act, process.pid, returncode)

    def _errors(self, name: str) -> str:
        text = self._places.folder.joinpath(f"{name}.stderr").read_text(errors="replace").strip()
        return "\n".join(text.splitlines()[-8:]) or "it said nothing"


class Watch:
    """Follows one process: which bodies began (the tally), which calls are recorded (the journal)."""

    def __init__(self, places: Places, view: View, *, pid: int, number: int) -> None:
        self._places = places
        self._view = view
        self._pid = pid
        self._epoch = number
        self._is_told = number == 1
        self.begun: set[str] = set()
        self.recorded: set[str] = set()
        self._seen: set[int] = set()

    async def look(self) -> None:
        self.begun = {line["key"] for line in lines_of(self._places.tally) if line["pid"] == self._pid}
        journal = await journal_of(self._places)
        if journal is None or journal[0].epoch < self._epoch:
            return
        row, records = journal
        receipts = receipts_of(row, records)
        if not self._is_told and len(receipts) >= self._epoch - 1:
            self._is_told = True
            self._view.line(" ", "finds in the journal", f"{receipts[-1].replayed} completed calls", style="dim")
        for record in records:
            if record.epoch != self._epoch or record.seq in self._seen:
                continue
            self._seen.add(record.seq)
            if record.kind in OUTCOMES:
                self.recorded.add(record.key)
                item = next(each for each in timeline_of(row, records) if each.seq == record.seq)
                self._view.line("·", record.key, self._outcome(item))
            elif record.kind == Kind.settled:
                verdict = json.loads(record.payload or "{}")
                said = f"in doubt; {verdict['by']} asks the mail server: {verdict['verdict']}"
                self._view.line("◈", record.key, said, style="magenta")
        working_on = sorted(self.begun - self.recorded)
        if working_on:
            self._view.now(", ".join(working_on))

    def _outcome(self, item: TimelineItem) -> str:
        if item.key not in self.begun:
            return "recorded, not done again"
        return f"{item.took_s or 0:.1f} s  {item.detail}".rstrip()
