"""What README.md, docs/ and examples/ say is executed, or compared with the code.

In a page, in order, in a folder of its own:
- a python block after `<!-- file: NAME -->` is written to that file; any other python block is executed, all of a page
  in one namespace (`await` is allowed at top level);
- a console block is typed into a terminal, command by command, and what it prints is compared: ids, times, durations,
  sizes and paths may differ;
- a text block after `<!-- output -->` is what the python block before it prints.

    UPDATE_DOCS=1 python -m pytest tests/test_docs.py       writes what was printed into the pages instead
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import fcntl
import importlib
import inspect
import io
import math
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
import click
import pytest

import holdfast as hf
from holdfast import testing
from holdfast.base import faults
from holdfast.base.config import Settings
from holdfast.cli import COMMANDS, cli, failure
from holdfast.control.filters import Filters
from holdfast.model import TRANSITIONS, Status
from holdfast.testing.processes import environment
from tests.cli.commands import Commands
from tests.forkserver import Forked, ForkServer, shared_forkserver
from tests.scripts import Script, be_python

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
#: Pages that damage a store to show what happens then.
DAMAGING = {"operations.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TEXTS = [
    *PAGES,
    *(
        ROOT / name
        for name in (
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "CONVENTIONS.md",
            "SECURITY.md",
            "changes/README.md",
            "deploy/README.md",
            "examples/README.md",
        )
    ),
]

#: What a path looks like in the pages.
HOME = "/home/me/agents"
COLUMNS = 110
UPDATE = bool(os.environ.get("UPDATE_DOCS"))

FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[a-z]+)(?:: (?P<what>\S+))? -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
LANGUAGES = {"python", "console", "sh", "text"}
#: What a block that is not executed may contain: setting up, which needs a network or takes minutes.
SET_UP = re.compile(r"(make [a-z]+|pip install [\w./'\[\]-]+|git clone \S+|cd \w+)(\s+#.*)?")

VARYING = (
    (r"\S+ \(uid \d+\)", "USER"),
    (r"\b[wtr]_[0-9a-v]+…?", "ID"),
    (r"(resumed by ID).*", r"\1"),
    (r"\bhf-[0-9a-f]{32}\b", "KEY"),
    (r"\bcode [0-9a-f]{8}\b", "code"),
    (r"\b\d{4}-\d\d-\d\d(T[\d:.+]+)?", "DATE"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\bpid \d+\b", "PID"),
    (r"\b\d+(\.\d+)? ?(B|kB|MB|GB)\b", "SIZE"),
    (r"\b\d+(\.\d+)?(ms|s|m\d\ds)\b( \(\d+:\d\d:\d\d\))?", "DURATION"),  # pytest tells a minute and more twice
    (r"\b\d+\.\d{3,}\b", "SECONDS"),
    (r"\b\d+(\.\d+)? s\b", "SECONDS"),
    (r"\b[0-9a-f]{12,}\b", "DIGEST"),
    (r"verified \d+/\d+", "verified"),
    (r"\b\d+(×| (crash points|lives|kills|processes)\b)", r"N\1"),
    (r"(✔ (python|sqlite) +).*", r"\1"),
    (r"\s+", " "),
)


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    language: str
    text: str
    mark: str
    what: str
    line: int
    span: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    source = page.read_text("utf-8")
    return [
        Block(
            page,
            found["language"],
            found["text"],
            found["mark"] or "",
            found["what"] or "",
            source.count("\n", 0, found.start("text")) + 1,
            found.span("text"),
        )
        for found in FENCE.finditer(source)
    ]


def normal(text: str) -> str:
    lines = []
    for line in text.splitlines():
        for pattern, instead in VARYING:
            line = re.sub(pattern, instead, line)
        if line.strip() and not line.startswith("loop.blocked "):  # a slow machine says so, whatever is typed
            lines.append(line.strip())
    return "\n".join(lines)


def alike(expected: str, printed: str) -> bool:
    """The same, but for some letters before a "…": a column of times is wider where a page takes longer."""
    ours, theirs = expected.split("…"), printed.split("…")
    return ours[-1] == theirs[-1] and all(map(_is_cut_alike, ours, theirs)) and len(ours) == len(theirs)


def _is_cut_alike(one: str, other: str) -> bool:
    return abs(len(one) - len(other)) <= 8 and (one.startswith(other) or other.startswith(one))


def test_what_is_cut_off_somewhere_else_is_alike() -> None:
    assert alike("a long te… 3 s ✔", "a long … 3 s ✔")
    assert not alike("a long te… 3 s ✔", "a wrong te… 3 s ✔")
    assert not alike("a long te… 3 s ✔", "a long te… 3 s ✖")
    assert not alike("a long te… 3 s ✔", "a long text 3 s ✔")
    assert not alike("… ✔", "much else comes first … ✔")


# a terminal


_SHELL = re.compile(r"[|&;<>$`*?~#]|\\\n")


class Terminal:
    """Types commands as a person would, in one folder, and reads what the screen shows.

    Each is a new interpreter, or our own plain commands are forked from a process that has Holdfast imported.
    """

    def __init__(self, folder: Path, *, is_fresh: bool = False) -> None:
        self.folder = folder
        self.is_fresh = is_fresh
        self.code = 0
        programs = folder.parent / f"{folder.name}-bin"
        programs.mkdir(exist_ok=True)
        for name, arguments in (("python", ""), ("holdfast", " -m holdfast")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
            program.chmod(0o700)
        inherited = {
            n: v for n, v in os.environ.items() if not n.startswith(("HOLDFAST_", "PYTEST_", "PYTHON", "COLUMNS"))
        }
        self.environment = inherited | {
            "PYTEST_ADDOPTS": "--disable-plugin-autoload -p holdfast",  # by its entry point; those of others are slow
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(SRC),
            "NO_COLOR": "1",
            "TERM": "xterm",
            "USER": "me",
            "LOGNAME": "me",
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",  # a page may write a file twice within a second
        }

    def type(self, command: str, expected: str = "") -> str:
        """What a command prints. What `timeout -s KILL` ends has first printed as many lines as are expected of it.

        A worker that `timeout` ends has first executed what there is.
        """
        if command == "echo $?":
            return f"{self.code}\n"
        due, lines, how = math.inf, expected.count("\n") - 1, signal.SIGKILL  # the last one is "Killed"
        if found := re.match(r"timeout -s KILL (\d+) |timeout (\d+) (?=holdfast worker )", command):
            due, command = time.monotonic() + int(found[1] or found[2]), f"exec {command[found.end() :]}"
            if found[2]:
                lines, how = 1, signal.SIGTERM
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        process = self._begin(command, theirs)
        os.close(theirs)
        screen = b""
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while True:
                if time.monotonic() >= due and screen.count(b"\n") >= lines and self._has_ended(how):
                    os.kill(process.pid, how)
                    due = math.inf
                if not select.select([ours], [], [], 60 if due == math.inf else 0.1)[0]:
                    if due == math.inf or time.monotonic() > due + 60:
                        break
                    continue
                some = os.read(ours, 65536)
                if not some:
                    break
                screen += some
        os.close(ours)
        try:
            code = process.wait(60)
        finally:
            process.kill()
        self.code = code if code >= 0 else 128 - code
        return self._shown(screen.decode()) + ("Killed\n" if self.code == 137 else "")

    def _has_ended(self, how: signal.Signals) -> bool:
        """Is there nothing left to execute for a worker that is to be stopped?"""
        file = self.folder / ".holdfast" / "holdfast.db"
        if how is signal.SIGKILL or not file.exists():
            return True
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return not connection.execute("SELECT count(*) FROM runs WHERE status IN ('queued', 'running')").get
        finally:
            connection.close()

    def _begin(self, command: str, terminal: int) -> subprocess.Popen[bytes] | Forked:
        words = [] if self.is_fresh or _SHELL.search(command) else shlex.split(command)
        match words:
            case ["holdfast", *rest]:
                words = ["-m", "holdfast", *rest]
            case ["python", file, *rest] if not file.startswith("-"):
                words = [file, *rest]
            case _:
                return subprocess.Popen(
                    ["bash", "-c", command],
                    cwd=self.folder,
                    env=self.environment,
                    stdin=terminal,
                    stdout=terminal,
                    stderr=terminal,
                )
        return shared_forkserver().start(
            be_python, streams=[terminal] * 3, env=self.environment, only=True, folder=str(self.folder), words=words
        )

    def _shown(self, screen: str) -> str:
        lines = [line.rpartition("\r\x1b[K")[2].rstrip() for line in screen.replace("\r\n", "\n").split("\n")]
        if screen.rpartition("\n")[2].startswith("\r\x1b[K"):
            lines[-1] = ""  # a line of progress, and nobody left to wipe it
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", "\n".join(lines))
        return text.replace(str(self.folder), HOME)


def commands(block: Block) -> list[tuple[str, str]]:
    """(command, what it prints)"""
    found: list[tuple[str, str]] = []
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        lines = part.splitlines(keepends=True)
        command = ""
        while lines:
            line = lines.pop(0)
            command += line
            if not line.endswith("\\n"):
                break
        found.append((command.rstrip("\n"), "".join(lines)))
    return found


# executing a page


class Page:
    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.terminal = Terminal(folder, is_fresh=path.name == "README.md")  # what a newcomer types
        self.module = types.ModuleType("__main__")
        self.namespace: dict[str, Any] = vars(self.module)
        self.printed = ""
        self.changes: list[tuple[tuple[int, int], str]] = []

    def execute(self) -> None:
        for block in blocks(self.path):
            match block.language, block.mark:
                case "python", "file":
                    (self.folder / block.what).write_text(block.text)
                case "python", _:
                    self.printed = self.run(block)
                case "console", _:
                    self.console(block)
                case "text", "output":
                    self.compare(block, block.text, self.printed, whole=self.printed)
                case _:
                    pass

    def run(self, block: Block) -> str:
        code = compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            found = eval(code, self.namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(found)
        return printed.getvalue().replace(str(self.folder), HOME)

    def console(self, block: Block) -> None:
        written, expected, whole = "", "", ""
        for command, output in commands(block):
            printed = self.terminal.type(command, output)
            written += f"$ {command}\n{printed.rstrip()}\n" if printed.strip() else f"$ {command}\n"
            expected += f"$ {command}\n{output}"
            whole += f"$ {command}\n{printed}"
        self.compare(block, expected, whole, whole=written)

    def compare(self, block: Block, expected: str, printed: str, *, whole: str) -> None:
        if alike(normal(expected), normal(printed)):
            return
        if not UPDATE:
            assert normal(printed) == normal(expected), f"{block}\n{whole}"
        self.changes.append((block.span, whole))

    def update(self) -> None:
        source = self.path.read_text("utf-8")
        for (start, end), text in reversed(self.changes):
            source = source[:start] + text + source[end:]
        self.path.write_text(source, "utf-8")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.corrupts] * (path.name in DAMAGING)) for path in PAGES],
    ids=lambda path: path.name,
)
def test_a_page_does_what_it_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "$ curl " in path.read_text(encoding="utf-8") and shutil.which("curl") is None:
        pytest.skip(f"{path.name} shows requests by curl, which is not installed")
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    known = set(sys.modules)
    page = Page(path, folder)
    try:
        with mock.patch.dict(os.environ):  # a page may set something for itself
            page.execute()
    finally:
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
    if UPDATE:
        page.update()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_has_nothing_that_is_not_executed(path: Path) -> None:
    source = path.read_text("utf-8")
    assert source.count("```") == 2 * len(blocks(path)), "a block that the tests do not see"
    for block in blocks(path):
        assert block.language in LANGUAGES, block
        if block.language == "console":
            assert block.text.startswith("$ "), block
        if block.language == "sh":
            assert [line for line in block.text.splitlines() if not SET_UP.fullmatch(line)] == [], block
        if block.language == "text":
            assert block.mark in ("output", "picture"), block


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_runs_again(path: Path, tmp_path: Path) -> None:
    """As its docstring says: the second time everything comes from the journal."""
    folder = tmp_path / "example"
    folder.mkdir()
    terminal = Terminal(folder, is_fresh=True)
    first = terminal.type(f"python {path}")
    assert terminal.code == 0, first
    files = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    again = Script(str(path), env=environment(), cwd=folder).ended(600)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == first.splitlines()[-1]
    assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == files, "an effect was repeated"
    document = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert document is not None
    assert f"python examples/{path.name}" in document


def test_there_are_examples_and_the_readme_names_them() -> None:
    assert len(EXAMPLES) >= 3
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [path.name for path in EXAMPLES if f"examples/{path.name}" not in readme] == []
    told = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert [path.name for path in EXAMPLES if f"[{path.name}]({path.name})" not in told] == []


# tables and lists compared with the code


def table(page: str, first: str) -> list[list[str]]:
    """The rows of all tables whose first heading is `first`."""
    rows: list[list[str]] = []
    is_in = False
    for line in (ROOT / page).read_text("utf-8").splitlines():
        is_in = line.startswith("|") and (is_in or line.startswith(f"| {first} |"))
        if is_in and not line.startswith((f"| {first} |", "|---")):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|\n"))])
    return rows


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 200


def test_the_table_of_statuses_is_the_state_machine() -> None:
    rows = table("docs/concepts.md", "status")
    assert [code(row[0]) for row in rows] == [[status.value] for status in Status]
    found = {Status(code(row[0])[0]): frozenset(map(Status, code(row[2]))) for row in rows}
    assert found == dict(TRANSITIONS)


def test_the_table_of_crash_points_is_complete() -> None:
    rows = table("docs/recovery.md", "crash point")
    assert {code(row[0])[0]: row[1] for row in rows} == faults.POINTS
    assert all(row[2] for row in rows)


CHANGING = """
import holdfast as hf
from pathlib import Path

def log(name):
    with Path("log").open("a") as file:
        print(name, file=file)

@hf.step
async def a(n: int) -> int:
    log("a")
    return n

@hf.step
async def b(n: int) -> int:
    log("b")
    return n

@hf.effect
async def e(n: int) -> int:
    log("e")
    return n

@hf.effect(on_doubt="retry")
async def f(n: int) -> int:
    log("f")
    return n

@hf.step
async def c() -> None:
    log("c")

@hf.effect
async def g() -> None:
    log("g")

@hf.agent
async def changing() -> None:
    await a(1)
    await b(2)
    await e(3)
    await f(4)
"""

#: change: (what is replaced, by what, what then runs; None: the run is blocked). Cut off when `f` is about to happen.
CHANGES: dict[str, list[tuple[str, str, list[str] | None]]] = {
    "comments, layout, code inside a step's body": [
        ("    await a(1)", "    # one\n    await a(\n        1)", ["f"]),
        ('    log("a")\n    return n', '    log("a")\n    return n + 0', ["f"]),
    ],
    "a step inserted": [("    await b(2)", "    await c()\n    await b(2)", ["c", "f"])],
    "a step removed": [("    await b(2)\n", "", ["f"])],
    "steps in another order": [("    await a(1)\n    await b(2)", "    await b(2)\n    await a(1)", ["f"])],
    "a step called with other arguments": [("await b(2)", "await b(5)", ["b", "f"])],
    "a step renamed": [("@hf.step\nasync def b", '@hf.step(name="bee")\nasync def b', ["b", "f"])],
    "an effect added after the last recorded one": [("await f(4)", "await f(4)\n    await g()", ["f", "g"])],
    "a recorded effect removed": [("    await e(3)\n", "", ["f"])],
    "an effect renamed, or called with other arguments": [
        ("@hf.effect\nasync def e", '@hf.effect(name="ee")\nasync def e', None),
        ("await e(3)", "await e(5)", None),
    ],
    "an effect added while a recorded one is not asked for": [("await e(3)", "await g()", None)],
    "an effect in doubt that the code does not ask for any more": [("    await f(4)\n", "", None)],
    "a return type that a recorded value does not fit": [
        ("async def b(n: int) -> int", "async def b(n: int) -> str", None)
    ],
    "an optional argument added, or another default": [
        ("async def b(n: int)", "async def b(n: int, m: int = 5)", ["f"]),
        ("async def e(n: int)", "async def e(n: int, *, m: int = 5)", ["f"]),
        ("async def changing()", "async def changing(m: int = 5)", ["f"]),
    ],
}


def test_the_table_of_code_changes_is_true(tmp_path: Path, forkserver: ForkServer) -> None:
    rows = {row[0]: row[1] for row in table("docs/code-changes.md", "change")}
    assert list(rows) == list(CHANGES)
    for number, (change, cases) in enumerate(CHANGES.items()):
        for case, (old, new, expected) in enumerate(cases):
            folder = tmp_path / f"{number}-{case}"
            folder.mkdir()
            holdfast = Commands(folder, forkserver)
            (folder / "agent.py").write_text(CHANGING)
            assert holdfast("run", "agent.py", "--id", "x", HOLDFAST_FAULT="effect.after_intent:kill@2").code == -9
            assert (folder / "log").read_text().split() == ["a", "b", "e"]
            (folder / "log").write_text("")
            assert old in CHANGING
            (folder / "agent.py").write_text(CHANGING.replace(old, new))
            ended = holdfast("run", "agent.py", "--id", "x")
            ran = (folder / "log").read_text().split()
            assert (ran if ended.code == 0 else None) == expected, f"{change}: {ended}"
            assert ended.code in (0, 7), f"{change}: {ended}"
            assert expected is not None or ran == [], f"{change}: {ran}"
            assert ("blocked" in rows[change]) == (expected is None), change


def test_the_bounds_in_the_text_are_the_bounds_in_the_code() -> None:
    text = (ROOT / "docs" / "recovery.md").read_text("utf-8")
    settings = Settings()
    assert f"{settings.backlog_records:,} records" in text
    assert settings.backlog_s == 1
    assert "one second" in text
    operations = {code(row[0])[0]: row[1] for row in table("docs/operations.md", "setting")}
    defaults = {each.name: getattr(settings, each.name) for each in dataclasses.fields(Settings)}
    assert operations.keys() == defaults.keys()
    shown = {"none": "", "off": False}
    for name, value in defaults.items():
        cell = operations[name]
        assert (shown[cell] if cell in shown else float(cell.replace(",", ""))) == value, name


def test_the_page_on_commands_has_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    rows = {code(row[0])[0].split()[0]: row for row in table("docs/cli.md", "command")}
    assert list(rows) == list(COMMANDS)
    common = {name for each in cli.params for name in each.opts} - {"--version"}
    context = click.Context(cli)
    for name, row in rows.items():
        assert row[1] == COMMANDS[name][2]
        command = cli.get_command(context, name)
        assert command is not None
        options = {each.opts[0] for each in command.params if isinstance(each, click.Option)} - common
        assert set(code(row[2])) == options, name
    assert {each for row in table("docs/cli.md", "option") for each in code(row[0])} == common - {"--help"}
    assert "HOLDFAST_URL" in text


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    rows = {int(row[0]): row[1] for row in table("docs/cli.md", "exit code")}
    names = "OK FAILED USAGE NOT_FOUND CONFLICT INTEGRITY HUMAN IN_DOUBT TIMEOUT INTERRUPTED".split()
    assert sorted(rows) == sorted(getattr(failure, name) for name in names)
    assert {int(number) for number in re.findall(r"(?:^|[:,] )(\d+) ", cli.epilog or "")} == set(rows)


def test_the_page_on_the_api_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    own, _, of_testing = text.partition("## `holdfast.testing`")
    lines = re.findall(r"^\| `(\w+)(?=[`(])", own, flags=re.M)
    assert sorted(lines) == sorted(hf.__all__)
    assert set(re.findall(r"^\| `(\w+)", of_testing, flags=re.M)) == set(testing.__all__)
    for kind in (hf.Run, hf.Holdfast, hf.InDoubt):
        public = {n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))}
        assert {n for n in public if f".{n}(" not in text} - {"decided"} == set(), kind


#: A call as the page on the API shows it: `name(…)`, `Kind.name(…)` or `.name(…)`.
SHOWN = re.compile(r"(?P<kind>\w+(?=\.))?(?P<dot>\.?)(?P<name>\w+)\((?P<given>[^()]*)\)")
#: `name`; `name=`, which can be left out or must be named; `*names`; `...`, the filters of runs.
PARAMETER = re.compile(r"\*?\w+=?|\.\.\.")
FILTERS = [f"{name}=" for name in Filters.__annotations__]


def given_in(call: str) -> list[str]:
    return [each.strip() for each in call.split(",") if each.strip()]


def problems(thing: Any, given: list[str]) -> str:
    """How what the page says of a call differs from what it takes."""
    positional: list[inspect.Parameter] = []
    named: list[str] = []
    for each in inspect.signature(thing).parameters.values():
        if each.kind is each.POSITIONAL_ONLY or each.name == "self":
            continue  # what a decorator decorates
        if each.kind is each.VAR_KEYWORD:
            named += FILTERS
        elif each.kind is each.KEYWORD_ONLY:
            named.append(f"{each.name}=")
        else:
            positional.append(each)
    takes = [f"*{each.name}" if each.kind is each.VAR_POSITIONAL else each.name for each in positional]
    said = [name for each in given for name in (FILTERS if each == "..." else [each])]
    first, rest = said[: len(takes)], said[len(takes) :]
    optional = {each.name for each in positional if each.default is not each.empty}
    is_right = [each.rstrip("=") if each.rstrip("=") in optional else each for each in first] == takes
    return "" if is_right and sorted(rest) == sorted(named) else f"takes {', '.join(takes + named)}"


def calls_shown() -> list[tuple[str, Any, list[str]]]:
    """(what is shown, the function or class, what it is given) for each call in a table of the page on the API."""
    found: list[tuple[str, Any, list[str]]] = []
    module: Any = hf
    heading = ""
    for line in (ROOT / "docs" / "api.md").read_text("utf-8").splitlines():
        if line == "## `holdfast.testing`":
            module = testing
        if not line.startswith("| `"):
            heading = line if line.startswith(("| name", "| method")) else heading
            continue
        cells = [code(cell) for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        row = cells[0][0]
        of_row = hf.Holdfast if heading.startswith("| method of an app") else getattr(module, row, None)
        for span in [each for cell in cells for each in cell]:
            call = SHOWN.fullmatch(span)
            if call is None or not all(PARAMETER.fullmatch(each) for each in given_in(call["given"])):
                continue  # a name alone, or an example
            holder = getattr(hf, call["kind"]) if call["kind"] else of_row if call["dot"] else module
            found.append((span, getattr(holder, call["name"]), given_in(call["given"])))
    return found


def test_calls_on_the_page_on_the_api_take_what_the_code_takes() -> None:
    shown = calls_shown()
    assert [f"{what} {told}" for what, thing, given in shown if (told := problems(thing, given))] == []
    things = [thing for _, thing, _ in shown]
    functions = [getattr(module, name) for module in (hf, testing) for name in module.__all__]
    methods = [
        getattr(kind, name)
        for kind in (hf.Run, hf.Holdfast, hf.Question, hf.InDoubt)
        for name in dir(kind)
        if not name.startswith("_")
    ]
    missing = [each for each in [*functions, *methods] if inspect.isfunction(each) and each not in things]
    assert missing == [hf.reducer], "its only argument is the function that it decorates"


def test_the_page_on_architecture_has_every_part_of_the_package() -> None:
    named = {name for row in table("docs/architecture.md", "layer") for name in code(row[0])}
    parts = {path.stem for path in (SRC / "holdfast").iterdir() if path.suffix == ".py" or any(path.glob("[a-z]*.py"))}
    assert parts - {"__init__", "__main__", "version"} == named


def test_the_fault_matrix_names_tests_that_exist() -> None:
    rows = table("tests/faults.md", "fault")
    assert rows
    for row in rows:
        for each in code(row[3]):
            file, _, name = each.partition("::")
            assert (ROOT / file).is_file(), each
            assert f"def {name}(" in (ROOT / file).read_text("utf-8"), each
        assert code(row[3]), row[0]


def test_every_row_of_the_comparison_has_a_source_and_a_date() -> None:
    rows = table("docs/comparison.md", "engine")
    assert len(rows) > 5
    for row in rows:
        assert "](" in row[-1], f"no source: {row}"
        assert len(row) == 3 or re.search(r"\d", row[1]), f"no version or date: {row}"
    assert re.search(r"20\d\d-\d\d", (ROOT / "docs" / "comparison.md").read_text("utf-8"))


def test_the_speed_table_is_what_the_benchmark_measures() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    part = readme.partition("<!-- bench -->")[2].partition("<!-- /bench -->")[0]
    named = re.findall(r"^\| ([^|]+?) \|", part, flags=re.M)[1:]
    source = "".join(path.read_text("utf-8") for path in (ROOT / "bench").glob("*.py"))
    assert named
    assert [name for name in named if f'"{name}' not in source] == []


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    source = FENCE.sub("", path.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", source):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", file.read_text("utf-8")), flags=re.M)
            assert anchor in map(slug, headings), target


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in readme] == []


def test_python_names_in_the_pages_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`hf\.(\w+)", FENCE.sub("", page.read_text("utf-8"))):
            assert hasattr(hf, name), f"{page.name}: hf.{name}"
        for name in re.findall(r"`(holdfast\.(?!db)[a-z_.]+)`", page.read_text("utf-8")):
            module, _, attribute = name.rpartition(".")
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
                continue
            assert hasattr(importlib.import_module(module), attribute), f"{page.name}: {name}"
