"""Scripts that call `hf.run`: what a person sees when it does not return."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import Commands, Ended

SCRIPT = """
import asyncio
import json
import sys
import time

import holdfast as hf


@hf.step
async def divide(n: int) -> int:
    return 1 // n


@hf.step
def parse(text: str) -> int:
    return json.loads(text)


@hf.step
async def forever() -> None:
    print("working", flush=True)
    await asyncio.sleep(600)


@hf.step
def stubborn() -> None:
    print("working", flush=True)
    time.sleep(600)


@hf.agent
async def fails() -> int:
    return await divide(0)


@hf.agent
async def reads() -> int:
    return await parse("{")


@hf.agent
async def raises() -> int:
    return int("x")


@hf.agent
async def asks() -> bool:
    return await hf.ask("Sure?")


@hf.agent
async def works() -> None:
    await forever()


@hf.agent
async def holds() -> None:
    await stubborn()

many = lambda: fails(3)
def inner() -> None:
    async def main() -> None:
        hf.run(asks())

    asyncio.run(main())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["wrong"]:
            hf.run(3)
        case ["inner"]:
            inner()
        case ["other", url]:
            hf.run(works(), id="one", url=url)
        case [name]:
            print(hf.run(globals()[name](), id="one"))
"""


@pytest.fixture
def script(hf: Commands) -> Path:
    path = hf.folder / "script.py"
    path.write_text(SCRIPT)
    return path


def start(hf: Commands, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "script.py", *arguments],
        cwd=hf.folder,
        env=hf.environment | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(hf: Commands, *arguments: str, **environment: str) -> Ended:
    process = start(hf, *arguments, **environment)
    out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out, err)


def places(err: str) -> list[str]:
    """The files and lines that a traceback names."""
    return [line.strip() for line in err.splitlines() if line.startswith("  File ")]


CALL = 'File "{script}", line 78, in <module>'


@pytest.mark.parametrize(
    ("agent", "lines", "last"),
    [
        (
            "fails",
            ['File "{script}", line 34, in fails', 'File "{script}", line 12, in divide', CALL],
            "holdfast.errors.RunFailed: Run one failed: ZeroDivisionError: integer division or modulo by zero",
        ),
        (
            "raises",
            ['File "{script}", line 44, in raises', CALL],
            "holdfast.errors.RunFailed: Run one failed: ValueError: invalid literal for int() with base 10: 'x'",
        ),
        ("asks", [CALL], None),
        (
            "many",
            [CALL],
            "holdfast.errors.UsageError: fails() -> int cannot be called like this: too many positional arguments.",
        ),
        (
            "wrong",
            ['File "{script}", line 72, in <module>'],
            "holdfast.errors.UsageError: hf.run() takes a call of an agent, like `my_agent(1, 2)`; got 3.",
        ),
    ],
)
def test_a_traceback_has_the_users_lines_and_none_of_ours(
    hf: Commands, script: Path, agent: str, lines: list[str], last: str | None
) -> None:
    ended = run(hf, agent)
    assert ended.code == 1
    assert places(ended.err) == [line.format(script=script) for line in lines], ended.err
    assert "event loop" not in ended.err
    if last is not None:
        assert ended.err.splitlines()[-1] == last
    if len(lines) == 1:
        assert "above exception" not in ended.err


def test_libraries_that_the_user_called_stay_in_it(hf: Commands, script: Path) -> None:
    found = places(run(hf, "reads").err)
    assert found[:2] == [f'File "{script}", line 39, in reads', f'File "{script}", line 17, in parse']
    assert found[2].endswith("in loads")
    assert not [place for place in found if "/holdfast/" in place or "/asyncio/" in place or "/concurrent/" in place]


def test_a_store_that_cannot_be_reached_is_one_sentence_below_the_line_that_asked(hf: Commands, script: Path) -> None:
    ended = run(hf, "asks", HOLDFAST_URL="postgresql://nobody@127.0.0.1:1/none")
    assert places(ended.err) == [CALL.format(script=script)]
    assert ended.err.splitlines()[-1].startswith(
        "holdfast.errors.StoreAway: postgresql://nobody@127.0.0.1:1/none cannot"
    )


def test_a_running_loop_is_refused_without_our_lines(hf: Commands, script: Path) -> None:
    ended = run(hf, "inner")
    assert not [place for place in places(ended.err) if "/holdfast/" in place]
    refused = "holdfast.errors.UsageError: hf.run() was called where an event loop runs already"
    assert ended.err.splitlines()[-1].startswith(refused)


def until_working(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"


def test_ctrl_c_gives_the_sentence_that_the_command_gives(hf: Commands, script: Path) -> None:
    process = start(hf, "works")
    until_working(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    said = "Interrupted; run one is left safe. Go on with: holdfast resume one script.py\n"
    assert (process.returncode, err) == (-signal.SIGINT, said)
    command = hf.start("resume", "one", "script.py")
    assert command.stderr is not None
    command.stderr.readline()
    assert command.stderr.readline() == "working\n"
    command.send_signal(signal.SIGINT)
    assert command.communicate(timeout=60)[1] == said


def test_the_sentence_names_a_store_that_is_not_the_usual_one(hf: Commands, script: Path) -> None:
    process = start(hf, "other", "elsewhere.db")
    until_working(process)
    process.send_signal(signal.SIGINT)
    said = "Interrupted; run one is left safe. Go on with: holdfast resume one script.py --db elsewhere.db\n"
    assert process.communicate(timeout=60)[1] == said


def test_a_second_ctrl_c_does_not_wait_for_a_thread(hf: Commands, script: Path) -> None:
    process = start(hf, "holds")
    until_working(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == "Waiting for a call to end; Ctrl-C again leaves at once.\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    said = "Interrupted; run one is left safe. Go on with: holdfast resume one script.py\n"
    assert (process.returncode, err) == (130, said)


def test_whoever_listens_to_ctrl_c_hears_it(hf: Commands, script: Path) -> None:
    """A script with a handler of its own keeps it, and gets it back from a run that has ended."""
    code = (
        "import os, signal\nimport holdfast as hf\n"
        "@hf.agent\nasync def short() -> int:\n    return 1\n"
        "hf.run(short())\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
        "heard = []\nsignal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "@hf.agent\nasync def own() -> int:\n    os.kill(os.getpid(), signal.SIGINT)\n    return len(heard)\n"
        "print(hf.run(own()))\n"
    )
    (hf.folder / "script.py").write_text(code)
    assert run(hf) == Ended(0, "True\n1\n", "")


def test_an_exception_that_is_caught_is_the_one_that_was_raised(hf: Commands, script: Path) -> None:
    code = (
        "import traceback\nimport holdfast as hf\n"
        "@hf.agent\nasync def bad() -> int:\n    return int('x')\n"
        "try:\n    hf.run(bad())\nexcept hf.RunFailed as error:\n"
        "    print(type(error.__cause__).__name__, len(traceback.extract_tb(error.__cause__.__traceback__)))\n"
    )
    (hf.folder / "script.py").write_text(code)
    assert run(hf).out == "ValueError 1\n"
    assert os.path.exists(hf.store)
