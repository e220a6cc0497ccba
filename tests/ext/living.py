"""A process that takes a run of an adapter's agent as far as it comes, and says what a person would be asked to say.

    python -m tests.ext.living URL MODULE:AGENT RUN ARGUMENTS(JSON)

What a tool did is in `notes.txt` in $HOLDFAST_TEST_FOLDER: whoever is asked about a doubt looks there.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing.processes import environment
from tests.eventually import eventually

_STEP_S = 0.02


def note(line: str) -> None:
    with open(Path(os.environ["HOLDFAST_TEST_FOLDER"]) / "notes.txt", "a") as file:
        file.write(f"{line}\n")
    here(line)


_been: Counter[str] = Counter()


def here(place: str) -> None:
    """Die, the first time that a process is at the place that HOLDFAST_TEST_KILL names: what was noted is one, too.

    `part@3` is the third time that one process is there.
    """
    wanted, _, time_of = os.environ.get("HOLDFAST_TEST_KILL", "").partition("@")
    if wanted != place:
        return
    _been[place] += 1
    if _been[place] == int(time_of or 1):
        with suppress(FileExistsError):
            (Path(os.environ["HOLDFAST_TEST_FOLDER"]) / "died").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)


def notes(folder: Path | None = None) -> list[str]:
    path = (folder or Path(os.environ["HOLDFAST_TEST_FOLDER"])) / "notes.txt"
    return path.read_text().splitlines() if path.exists() else []


#: What the bots of most adapters come to: two turns, with two mails at once in each.
END = "sent 1a, sent 1b, sent 2a, sent 2b"


def check(result: Any, folder: Path) -> None:
    """It came to that end, and each mail was sent once."""
    assert result == END
    done = [line for line in notes(folder) if line.startswith("mail")]
    assert sorted(done) == ["mail 1a", "mail 1b", "mail 2a", "mail 2b"]


async def said_of(doubt: Any) -> hf.Verdict[Any]:
    """A tool notes `mail 1a`, and returns `sent 1a`; another one `refund 500`, and `paid 500`."""
    (about,) = json.loads(doubt.args or "{}").items()
    done, result = {"to": ("mail", "sent"), "cents": ("refund", "paid")}[about[0]]
    return hf.landed(f"{result} {about[1]}") if f"{done} {about[1]}" in notes() else hf.not_landed()


async def live(
    url: str, agent: hf.Agent[..., Any], run_id: str, arguments: Sequence[Any], *, answer: Any = True
) -> Any:
    async with hf.connect(url, agents=[agent]) as app:
        run = await app.start(agent(*arguments), id=run_id)
        while (status := await run.status()) not in ("done", "failed", "cancelled", "blocked"):
            if status == "in_doubt":
                for doubt in await run.in_doubt():
                    await doubt.resolve(await said_of(doubt))
            for question in await app.questions():
                if question.run_id == run_id:
                    here("asked")
                    await question.answer(answer)
                    here("answered")
            await asyncio.sleep(_STEP_S)
        return await run.result(timeout=60)


def live_once(url: str, module: str, agent: str, run_id: str, arguments: Sequence[Any], answer: Any, told: str) -> None:
    """In a process that was forked: as above; what it came to is written into a file."""
    found = asyncio.run(live(url, getattr(sys.modules[module], agent), run_id, arguments, answer=answer))
    Path(told).write_text(json.dumps(found))


def doubt_once(url: str, module: str, agent: str, run_id: str, arguments: Sequence[Any]) -> None:
    """In a process that was forked: until a person has to say what became of a call."""

    async def main() -> None:
        async with hf.connect(url, agents=[getattr(sys.modules[module], agent)]) as app:
            run = await app.start(getattr(sys.modules[module], agent)(*arguments), id=run_id)
            await eventually(lambda: is_parked(run))

    async def is_parked(run: Any) -> bool:
        return bool(await run.status() == "in_doubt")

    asyncio.run(main())


def start(url: str, agent: str, *, folder: Path, run_id: str = "r", fault: str = "", arguments: Any = ("go",)) -> Any:
    """The process, to be killed or waited for."""
    command = [sys.executable, "-m", "tests.ext.living", url, agent, run_id, json.dumps(arguments)]
    env = {"HOLDFAST_FAULT": fault, "HOLDFAST_TEST_FOLDER": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(env))


def lived(url: str, agent: str, *, folder: Path, faults: Sequence[str] = (), arguments: Any = ("go",)) -> Any:
    """What the run comes to, if processes die at these points before one does not."""
    for fault in faults:
        process = start(url, agent, folder=folder, fault=fault, arguments=arguments)
        process.communicate(timeout=90)
        assert process.returncode == -9, f"{fault} was not passed"
    return ended(start(url, agent, folder=folder, arguments=arguments))


def ended(process: Any) -> Any:
    said, _ = process.communicate(timeout=90)
    assert process.returncode == 0, said
    return json.loads(said.splitlines()[-1])


def stormed(url: str, agent: str, *, folder: Path, kills: int, seed: int, arguments: Any = ("go",)) -> Any:
    """The same with so many kills at random moments."""
    chance, longest_s = random.Random(seed), 3.0
    for _ in range(kills):
        process = start(url, agent, folder=folder, arguments=arguments)
        time.sleep(chance.uniform(0.8, longest_s))
        process.kill()
        process.communicate()
    return ended(start(url, agent, folder=folder, arguments=arguments))


if __name__ == "__main__":
    _url, _agent, _run, _arguments = sys.argv[1:]
    _module, _, _name = _agent.partition(":")
    _found = getattr(importlib.import_module(_module), _name)
    print(json.dumps(asyncio.run(live(_url, _found, _run, json.loads(_arguments)))))
