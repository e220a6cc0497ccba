"""What users write passes mypy and pyright, both strict; what they get wrong is found, on the right line.

The checkers run as a user runs them: their own strict mode, no configuration of ours.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.types import good

HERE = Path(__file__).parent / "types"
SOURCE = Path(holdfast.__file__).parents[1]
FILES = ("good.py", "bad.py")
Rejected = dict[str, dict[int, list[str]]]  #: messages, by file and line


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("types")
    for name in FILES:
        (folder / name).write_text((HERE / name).read_text().replace("# mypy: ignore-errors", "#"))
    return folder


@pytest.fixture(scope="module")
def mypy(copies: Path) -> Rejected:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--follow-imports=silent",
        "--cache-dir=.cache",
        *FILES,
    ]
    done = subprocess.run(
        command, cwd=copies, env={**os.environ, "MYPYPATH": str(SOURCE)}, capture_output=True, text=True, timeout=110
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    rejected: Rejected = {name: {} for name in FILES}
    for line in done.stdout.splitlines():
        if found := re.match(r"(\w+\.py):(\d+): error: (.*)", line):
            rejected[found[1]].setdefault(int(found[2]), []).append(found[3])
    return rejected


@pytest.fixture(scope="module")
def pyright(copies: Path) -> Rejected:
    program = Path(sys.executable).parent / "pyright"
    if not program.exists():
        pytest.skip("pyright is not installed here: pip install 'pyright[nodejs]'")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(SOURCE)], "include": list(FILES)}
    (copies / "pyrightconfig.json").write_text(json.dumps(settings))
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    command = [str(program), "--outputjson", "--pythonpath", sys.executable]
    try:
        done = subprocess.run(command, cwd=copies, env=environment, capture_output=True, text=True, timeout=110)
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        pytest.skip(f"pyright cannot start, probably for want of node (pip install 'pyright[nodejs]'): {error}")
    rejected: Rejected = {name: {} for name in FILES}
    for each in report["generalDiagnostics"]:
        line = each["range"]["start"]["line"] + 1
        rejected[Path(each["file"]).name].setdefault(line, []).append(each["message"])
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    return rejected


#: The other one takes its time to start.
CHECKERS = ["mypy", pytest.param("pyright", marks=pytest.mark.prove)]


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_users_write_is_accepted(checker: str, request: pytest.FixtureRequest) -> None:
    rejected: Rejected = request.getfixturevalue(checker)
    assert rejected["good.py"] == {}


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_mistake_is_rejected_on_its_line(checker: str, request: pytest.FixtureRequest) -> None:
    rejected: Rejected = request.getfixturevalue(checker)
    lines = (HERE / "bad.py").read_text().splitlines()
    marked = {n: re.search(r"  # reject(: (\w+).*)?$", line) for n, line in enumerate(lines, 1)}
    expected = {n for n, mark in marked.items() if mark and mark[2] in (None, checker)}
    assert len(expected) > 80
    found = rejected["bad.py"]
    missed = [f"{n}: {lines[n - 1]}" for n in sorted(expected - found.keys())]
    unexpected = [f"{n}: {lines[n - 1]} -> {found[n]}" for n in sorted(found.keys() - expected)]
    assert (missed, unexpected) == ([], [])


@pytest.mark.parametrize(
    "function",
    [
        good.search,
        good.fetch,
        good.add,
        good.describe,
        good.send,
        good.charge,
        good.search.with_options(key="k"),
        good.send.with_options(timeout=1),
        good.Library.read,
        good.Library.title,
        good.Library("/").read,
    ],
)
def test_a_step_or_effect_is_an_async_function_to_whoever_inspects_it(function: object) -> None:
    assert inspect.iscoroutinefunction(function)
    assert inspect.isfunction(function) or inspect.ismethod(function)


@pytest.mark.parametrize("agent", [good.shout, good.research, good.newsletter])
def test_an_agent_is_an_async_function_to_whoever_inspects_it(agent: object) -> None:
    assert inspect.iscoroutinefunction(agent)
    assert asyncio.iscoroutinefunction(agent)


def test_the_decorated_function_keeps_name_docstring_and_signature() -> None:
    assert good.search.__name__ == "search"
    assert good.search.__doc__ == "Find pages."
    assert good.search.__module__ == good.__name__
    assert str(inspect.signature(good.search)) == "(query: 'str', limit: 'int' = 10) -> 'list[str]'"
    assert inspect.get_annotations(good.fetch, eval_str=True) == {"url": str, "follow": bool, "return": good.Page}
    assert str(inspect.signature(good.add)) == "(first: 'int', /, *others: 'int') -> 'int'"
    assert str(inspect.signature(good.describe)) == "(page: 'Page', **labels: 'str') -> 'str'"
    assert good.send.with_options(key="k").__name__ == "send"
    assert good.send.__doc__ == "Send a message."
    assert list(inspect.signature(good.Library("/").read).parameters) == ["path", "encoding"]
    assert good.shout.__name__ == "shout"
    assert good.shout.__doc__ == "Say it aloud."
    assert str(inspect.signature(good.shout)) == "(text: 'str', times: 'int' = 1) -> 'str'"


def test_verify_and_undo_stay_the_functions_they_were() -> None:
    assert inspect.iscoroutinefunction(good.find_sent)
    assert good.find_sent.__doc__ == "Look for it in the outbox."
    assert not inspect.iscoroutinefunction(good.find_charge)
    assert not inspect.iscoroutinefunction(good.refund)


@pytest.mark.parametrize("usage", [good.steps, good.options, good.effects, good.methods, good.values])
def test_outside_of_a_run_the_functions_do_what_their_types_say(usage: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(usage())


def test_inside_a_run_they_do_as_well(tmp_path: Path) -> None:
    url = str(tmp_path / "types.db")
    assert good.script(url) == "tides-2"
    asyncio.run(good.service(url))
