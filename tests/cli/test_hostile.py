"""Every command, given hostile strings and in a store full of them: it ends as commands end, shows nothing raw on a
terminal, and tells no command that does anything else than it says."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import pytest

from holdfast.base.hints import is_harmless
from holdfast.cli import COMMANDS, cli
from holdfast.cli.answers import understood
from holdfast.cli.commands.questions import detail
from holdfast.cli.failure import Failure
from holdfast.cli.forms import read_form
from holdfast.cli.groups import Group
from holdfast.handle.decisions import Question
from holdfast.journal.integrity import seal_question
from holdfast.model import QuestionRow, QuestionState, RunId
from holdfast.store.contract import Store
from tests.cli.commands import Commands
from tests.cli.hostile_world import SORTS, all_texts_are_used, build, copied, run_id_of, text_of
from tests.forkserver import ForkServer
from tests.hostile import (
    BODIES,
    FILE_NAMES,
    IDS,
    MARKUP,
    OPTIONS,
    SCHEMAS,
    SHELL,
    UNSEEN,
    hints_in,
    named,
    raw_in,
    typed,
)

CODES = {0, 1, 2, 3, 5, 6, 7, 8, 124, 130}
#: What a command is given for a hostile id.
Arguments = Callable[[str], Sequence[str]]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, forkserver: ForkServer) -> Path:
    folder = tmp_path_factory.mktemp("world")
    build(Commands(folder, forkserver))
    return folder


@pytest.fixture
def hf(world: Path, tmp_path_factory: pytest.TempPathFactory, forkserver: ForkServer) -> Commands:
    folder = tmp_path_factory.mktemp("folder")  # not the test's own: hundreds of histories would be checked each time
    copied(world, folder)
    return Commands(folder, forkserver, writes_agents=False)


def of(sort: str, *rest: str, command: Sequence[str] = (), options: Sequence[str] = ()) -> Arguments:
    """A command about the run of a sort that has the hostile id."""
    return lambda hostile: [*command, *options, "--", run_id_of(sort, hostile), *rest]


def about(*command: str, options: Sequence[str] = (), rest: Sequence[str] = ()) -> Arguments:
    """A command about whatever has the hostile id itself as its name, or about nothing that exists."""
    return lambda hostile: [*command, *options, "--", hostile, *rest]


def plain(*command: str) -> Arguments:
    return lambda hostile: command


def with_text(*command: str, sort: str, options: Sequence[str] = ()) -> Arguments:
    """As `of`, with the text that the run is about behind it."""
    return lambda hostile: [*command, *options, "--", run_id_of(sort, hostile), _argument(text_of(sort, hostile))]


def _argument(text: str) -> str:
    return text.replace("\0", "")


def _option(*command: str, option: str) -> Arguments:
    return lambda hostile: [*command, f"{option}={hostile}"]


#: What is tried of each command.
TRIED: dict[str, list[Arguments]] = {
    "run": [
        lambda h: ["run", "--id", f"{h} new", "--", "agents.py:ended", h, text_of("ended", h)],
        lambda h: [
            "run",
            f"--id={h}",
            f"--thread={h}",
            f"--input={json.dumps({'name': h, 'text': h})}",
            "agents.py:ended",
        ],
        lambda h: ["run", "--id", f"{h} again", "--", "agents.py:failed", h, text_of("failed", h)],
        about("run"),
        _option("run", "agents.py:ended", option="--input"),
    ],
    "resume": [
        of("held", command=["resume"]),
        of("cut", command=["resume"]),
        of("ended", "agents.py", command=["resume"]),
        of("asking", "agents.py", command=["resume"]),
        of("doubtful", command=["resume"], options=["--app", "agents.py"]),
        of("listening", "agents.py", command=["resume"]),
        of("failed", command=["resume"]),
        about("resume"),
        about("resume", rest=["agents.py", "other"]),
        _option("resume", option="--agent"),
    ],
    "retry": [of("failed", "agents.py", command=["retry"]), of("failed", command=["retry"]), about("retry")],
    "fork": [
        of("ended", command=["fork"], options=["--dry-run"]),
        of("doubtful", command=["fork"], options=["--at", "3", "--note", "\x1b[31m", "--by", "\u200b"]),
        of("asking", command=["fork"], options=["--result", "\x1b[31m=1"]),
        lambda h: ["fork", f"--id={h} fork", f"--thread={h}", "--", run_id_of("ended", h)],
        about("fork"),
    ],
    "pause": [
        of("asking", command=["pause"], options=["--note", "\x1b[31m", "--by", "\u200b"]),
        _option("pause", option="--queue"),
    ],
    "cancel": [
        of("asking", command=["cancel"], options=["--timeout=0"]),
        of("ended", command=["cancel"]),
        _option("cancel", "--yes", "--timeout=0", option="--queue"),
    ],
    "runs": [
        plain("runs", "--limit", "500"),
        plain("runs", "--limit", "7"),
        lambda h: ["runs", "--limit", "1", "--cursor", run_id_of("cut", h)],
        _option("runs", option="--agent"),
        _option("runs", option="--thread"),
        _option("runs", option="--status"),
        _option("runs", option="--since"),
    ],
    "show": [
        *(of(sort, command=["show"]) for sort in SORTS),
        *(of(sort, command=["show"], options=["--story"]) for sort in SORTS),
        of("ended", command=["show"], options=["--journal"]),
        about("show"),
    ],
    "receipt": [*(of(sort, command=["receipt"]) for sort in ("ended", "failed", "cut")), about("receipt")],
    "plan": [of("ended", command=["plan"]), of("ended", command=["plan"], options=["--edit"]), about("plan")],
    "activity": [
        plain("activity"),
        of("held", command=["activity"]),
        about("activity"),
        _option("activity", option="--by"),
    ],
    "checkpoints": [of("ended", command=["checkpoints"]), about("checkpoints")],
    "state": [of("ended", command=["state"]), about("state"), _option("state", "one", option="--turn")],
    "diff": [of("ended", command=["diff"], options=["1", "2"]), lambda h: ["diff", "--", h, "1", "2"]],
    "watch": [plain("watch", "--once"), *(of(sort, command=["watch"], options=["--once"]) for sort in SORTS)],
    "stream": [
        of("ended", command=["stream"]),
        of("failed", "output", command=["stream"], options=["--offset", "0", "--follow"]),
        lambda h: ["stream", "--", run_id_of("ended", h), h],
        about("stream"),
    ],
    "thread": [about("thread"), about("thread", options=["--since", "1"]), about("thread", rest=["more"])],
    "artifacts": [
        *(of(sort, command=["artifacts"]) for sort in SORTS),
        of("ended", "journal", command=["artifacts"]),
        of("ended", "journal", command=["artifacts"], options=["--save", "saved"]),
        with_text("artifacts", sort="ended"),
        about("artifacts"),
    ],
    "send": [
        lambda h: ["send", f"--by={h}", f"--dedup={h}", "--", run_id_of("listening", h), h, "true"],
        with_text("send", sort="listening"),
        of("asking", "x", "{", command=["send"]),
    ],
    "emit": [about("emit", rest=["5"]), about("emit", options=["--dedup", "\x1b["], rest=["{"])],
    "interrupt": [
        with_text("interrupt", sort="cut", options=["--no-wait"]),
        with_text("interrupt", sort="ended"),
        of("asking", "hello", command=["interrupt"], options=["--timeout", "0.01"]),
    ],
    "questions": [
        plain("questions"),
        plain("questions", "--all"),
        *(of(sort, command=["questions"]) for sort in ("asking", "forming", "drafting")),
        about("questions"),
    ],
    "answer": [with_text("answer", sort=sort) for sort in ("asking", "forming", "drafting", "held")]
    + [of("forming", f"{text}={text}", command=["answer"]) for text in ("first", "\x1b[31m")]
    + [about("answer", rest=["yes"]), _option("answer", "q_1", "yes", option="--by")],
    "decline": [of("asking", command=["decline"], options=["--note", "\x1b[31m\u202e"]), about("decline")],
    "check": [plain("check", "agents.py"), about("check"), _option("check", "agents.py", option="--agent")],
    "in-doubt": [
        plain("in-doubt"),
        of("doubtful", command=["in-doubt"]),
        of("cut", command=["in-doubt"]),
        about("in-doubt"),
    ],
    "resolve": [
        lambda h: ["resolve", "--fail", text_of("doubtful", h), "--yes", "--", run_id_of("doubtful", h), f"key:{h}"],
        lambda h: ["resolve", "--not-happened", "--yes", "--", run_id_of("doubtful", h), h],
        lambda h: ["resolve", "--happened", h, "--yes", "--", run_id_of("doubtful", h)],
        of("cut", command=["resolve"], options=["--not-happened", "--yes"]),
        of("ended", command=["resolve"], options=["--not-happened", "--yes"]),
    ],
    "worker": [
        lambda h: ["worker", "--", f"{h}/nowhere.py"],
        lambda h: ["worker", "--", f"agents.py:{h}"],
        _option("worker", "agents.py", option="--drain-timeout"),
    ],
    "console": [
        lambda h: ["console", "--", f"{h}/nowhere.db"],
        lambda h: ["console", f"--db={h}", "--", f"{h}/nowhere.db"],
        _option("console", option="--port"),
    ],
    "serve": [
        lambda h: ["serve", "--", f"{h}/nowhere.py"],
        lambda h: ["serve", "--worker", "--read-only", "--", h],
        lambda h: ["serve", f"--bind={h}"],
        _option("serve", option="--add-user"),
        _option("serve", option="--tls-cert"),
    ],
    "workers": [plain("workers"), plain("workers", "--here")],
    "health": [about("health"), _option("health", "beat", option="--max-age")],
    "queues": [
        plain("queues"),
        about("queues", "pause"),
        about("queues", "resume"),
        about("queues", "set", options=["--rate", "5/m"]),
        lambda h: ["queues", "set", f"--rate={h}", "--", h],
    ],
    "schedules": [
        plain("schedules"),
        about("schedules", "pause"),
        about("schedules", "resume"),
        about("schedules", "run"),
        about("schedules", "next"),
        about("schedules", "backfill", options=["--from", "2020-01-01", "--to", "2020-02-01"]),
        about("schedules", "backfill", options=["--from", "\x1b[31m"]),
        lambda h: ["schedules", "rm", "--", h],
        lambda h: ["schedules", "rm", "--", f"{h} is not there"],
    ],
    "fire": [about("fire"), lambda h: ["fire", "--", f"{h} is not there"]],
    "triggers": [
        plain("triggers"),
        plain("triggers", "log", "t1"),
        *(about("triggers", act) for act in ("pause", "resume", "rm", "log", "refused")),
    ],
    "copy": [
        lambda h: ["copy", "--", ".holdfast/holdfast.db", "other.db", run_id_of("ended", h)],
        lambda h: ["copy", "--move", "--", ".holdfast/holdfast.db", "other.db", run_id_of("asking", h)],
        lambda h: ["copy", "--", ".holdfast/holdfast.db", "other.db", run_id_of("cut", h)],
        lambda h: ["copy", "--", f"nowhere/{h}", "other.db"],
    ],
    "prune": [
        _option("prune", "--older-than", "0s", "--dry-run", option="--agent"),
        _option("prune", option="--older-than"),
    ],
    "retention": [
        plain("retention"),
        about("retention"),
        about("retention", options=["--keep", "9d"]),
        _option("retention", "a", option="--keep"),
    ],
    "verify": [plain("verify"), of("ended", command=["verify"]), about("verify")],
    "repair": [
        lambda h: ["repair", "--", "other.db", run_id_of("ended", h)],
        _option("repair", "other.db", option="--note"),
    ],
    "migrate": [plain("migrate"), plain("migrate", "--check")],
    "backup": [lambda h: ["backup", "--", f"{h.replace('/', '-')}.db"], lambda h: ["backup", "--", f"nowhere/{h}"]],
    "doctor": [plain("doctor"), _option("doctor", option="--db")],
    "demo": [_option("demo", option="--no-such-option")],
    "completion": [plain("completion", "bash"), about("completion")],
    "version": [plain("version"), about("version")],
}


def groups() -> Iterator[tuple[str, str]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if isinstance(command, Group):
            yield from ((name, act) for act in command.commands if act != "ls")


def test_every_command_is_tried_and_every_text_is_used() -> None:
    assert TRIED.keys() == COMMANDS.keys()
    for name, act in groups():
        assert any([*arguments("x")][1:2] == [act] for arguments in TRIED[name]), f"{name} {act}"
    assert all_texts_are_used()


@dataclass(frozen=True, slots=True)
class Tried:
    """A command that was given, for which id, and what came of it."""

    hostile: str
    arguments: Sequence[str]
    code: int
    shown: str

    @property
    def run_id(self) -> str | None:
        """The run that it is about, if it is about one."""
        return next((each for each in self.arguments if each in RUN_IDS), None)


RUN_IDS = {run_id_of(sort, hostile) for sort in SORTS for hostile in IDS.values()}


#: `make test` has each way of a command with a twentieth of the ids that `make prove` has.
SHARES = [pytest.param(20, id="some"), pytest.param(1, id="all", marks=pytest.mark.prove)]


def tried(hf: Commands, name: str, share: int, *, is_terminal: bool) -> Iterator[Tried]:
    """The command in all its ways, and with many ids, but not each way with each; what needs no id, once.

    Not on a terminal, it is asked for JSON every other time.
    """
    ways = TRIED[name]
    step = share * min(6 if is_terminal else 12, len(ways))
    given: dict[tuple[str, ...], str] = {}
    for number, arguments in enumerate(ways):
        for index, hostile in enumerate([*IDS.values()][number % step :: step]):
            options = ("--json",) if not is_terminal and (number + index) % 2 else ()
            given.setdefault((*options, *arguments(hostile)), hostile)
    ended = hf.batch([[*each] for each in given], is_terminal=is_terminal)
    for (words, hostile), (code, shown) in zip(given.items(), ended, strict=True):
        yield Tried(hostile, words, code, shown)


def check(each: Tried) -> None:
    assert each.code in CODES, (each.arguments, each.code, each.shown)
    assert "Traceback" not in each.shown, (each.arguments, each.shown)
    assert "an error in Holdfast" not in each.shown, (each.arguments, each.shown)
    assert not raw_in(each.shown), (each.arguments, raw_in(each.shown), each.shown)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", COMMANDS)
def test_on_a_terminal_nothing_is_raw_and_what_is_told_can_be_copied(
    hf: Commands, name: str, share: int, tmp_path: Path
) -> None:
    for each in tried(hf, name, share, is_terminal=True):
        check(each)
        for hint in dict.fromkeys(hints_in(each.shown)):
            check_hint(each, hint, typed(hint, tmp_path))


def check_hint(each: Tried, hint: str, words: Sequence[str]) -> None:
    """A command about the run is a command, about that run."""
    if (
        each.run_id is None
        or not words
        or not re.match(r"holdfast (resume|retry|show|verify|send|in-doubt|resolve) ", hint)
    ):
        return
    if "RUN" in words or "Usage:" in each.shown:
        return
    assert each.run_id in words, (hint, words, each.shown)
    if hint.endswith(tuple("'\"JSONFILETRYMGUP")):  # nothing is said behind it
        command = cli.get_command(click.Context(cli), words[0])
        assert command is not None
        params = command.make_context(words[0], [*words[1:]]).params
        assert each.run_id in _values(params), (hint, params)


def _values(params: Mapping[str, object]) -> Iterator[object]:
    for value in params.values():
        yield from value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", COMMANDS)
def test_neither_is_anything_raw_in_a_pipe_or_in_json(hf: Commands, name: str, share: int) -> None:
    for each in tried(hf, name, share, is_terminal=False):
        check(each)


@pytest.mark.parametrize("sort", ["asking", "forming", "drafting", "held"])
def test_who_is_asked_at_the_terminal_sees_nothing_raw_and_can_copy(hf: Commands, sort: str, tmp_path: Path) -> None:
    for hostile in list(IDS.values())[:: 6 if sort == "held" else 3]:
        ended = hf.on_terminal("answer", "--", run_id_of(sort, hostile), typed="\x04" * 4)
        check(Tried(hostile, ["answer"], ended.code, ended.out.replace("^D\b\b", "")))
        heard = [typed(hint, tmp_path) for hint in hints_in(ended.out)]
        assert [words[0] for words in heard] == ["answer", "decline"]
        if sort == "asking":
            assert heard[0][-1] == f"{text_of(sort, hostile)}|{hostile}|neither"


def test_a_question_that_has_what_is_not_seen_says_so(hf: Commands) -> None:
    questions = {each["run"]: each for each in hf("questions", "--json").json["items"]}
    warned = 0
    for sort in ("asking", "forming", "drafting"):
        for hostile in IDS.values():
            run_id, text = run_id_of(sort, hostile), text_of(sort, hostile)
            if text in UNSEEN.values():
                warned += 1
                assert questions[run_id]["unseen"]
                shown = hf.on_terminal("questions", questions[run_id]["id"]).out
                assert "⚠ It has characters that are not seen" in shown
                assert questions[run_id]["unseen"][0] in shown
    assert warned > 3
    seen = {**SHELL, **OPTIONS, **MARKUP}.values()
    plain = [run_id_of(sort, each) for sort in SORTS[2:5] for each in seen if text_of(sort, each) in seen]
    assert plain
    assert not any(questions[each]["unseen"] for each in plain)


@pytest.mark.parametrize("text", **named(FILE_NAMES))
def test_a_file_may_be_called_anything(hf: Commands, text: str) -> None:
    name = f"{text[:60]}.py"
    try:
        (hf.folder / name).write_text("import holdfast as hf\n@hf.agent\nasync def one() -> str:\n    return 'ok'\n")
    except (ValueError, OSError):
        pytest.skip("no file can be called that")
    path = f"./{name}"
    ended = hf("run", "--id", "one", path)
    check(Tried(text, ["run"], ended.code, ended.err))
    assert (ended.code, ended.out) == (0, "ok\n"), ended.err
    for arguments in (["show", "one"], ["resume", "one", path], ["resume", "one"]):
        shown = hf.on_terminal(*arguments)
        check(Tried(text, arguments, shown.code, shown.out))


def test_a_shell_completes_nothing_that_it_would_act_upon(hf: Commands, tmp_path: Path) -> None:
    hf("run", "agents.py:ended", "plain", "text", "--id", "plain-7")
    asked = ("show", "show order-", "resume", "questions", "queues pause", "schedules run", "retention", "runs --queue")
    program = tmp_path / "bin" / "holdfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    program.chmod(0o755)
    lines = [hf("completion", "bash").out]
    for words in asked:
        given = f"holdfast {words}" + ("" if words.endswith("-") else " ''")
        lines.append(f"COMPREPLY=(); COMP_WORDS=({given}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))")
        lines.append('_holdfast_completion holdfast; printf "%s\\n" "${COMPREPLY[@]}" --')
    before = set(hf.folder.iterdir())
    ended = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=hf.folder,
        env=hf.environment | {"PATH": f"{program.parent}:{hf.environment['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert set(hf.folder.iterdir()) == before
    offered = [each.split() for each in ended.stdout.split("--\n")[: len(asked)]]
    assert [len(each) > 0 for each in offered] == [words != "show order-" for words in asked], ended
    assert "plain-7" in offered[0]
    assert "東京-ü" in offered[4]
    assert not [word for each in offered for word in each if not is_harmless(word)]


def test_a_value_may_be_anything(hf: Commands) -> None:
    for number, body in enumerate(BODIES.values()):
        (hf.folder / f"body{number}").write_bytes(body)
    files = [f"@body{number}" for number in range(len(BODIES))]
    run_id, cut = run_id_of("asking", IDS["ideographs"]), run_id_of("cut", IDS["ideographs"])
    batch = [["emit", "order.paid", file] for file in files]
    batch += [["send", run_id_of("listening", IDS["ideographs"]), IDS["ideographs"], file] for file in files]
    batch += [["run", "agents.py:hears", "--input", file] for file in files]
    batch += [["answer", run_id, "--json-value", file] for file in files]
    batch += [["interrupt", cut, file, "--no-wait"] for file in files]
    for arguments, (code, shown) in zip(batch, hf.batch(batch, is_terminal=True), strict=True):
        check(Tried("", arguments, code, shown))


@pytest.mark.parametrize("schema", **named(SCHEMAS))
@pytest.mark.parametrize("kind", ["form", "draft"])
def test_a_form_may_ask_for_anything(schema: dict[str, Any], kind: str, tmp_path: Path) -> None:
    question = a_question(kind, schema)
    shown = "\n".join(detail(question, 80, has_color=False))
    assert not raw_in(shown)
    assert [*detail(question, 10, has_color=False)]
    for hint in hints_in(shown):
        typed(hint, tmp_path)
    for words in (["a"], ["{}"], ["last=5"], [f"{name}=\x1b[31m" for name in schema.get("required", ())]):
        with contextlib.suppress(Failure):
            understood(question, words, yes=False, no=False)
        with contextlib.suppress(Failure):
            read_form(words, schema)


def a_question(kind: str, schema: dict[str, Any]) -> Question:
    body = {"agent": "a", "thread": "t", "prompt": "?", "show": None, "kind": kind, "options": None, "schema": schema}
    row = QuestionRow(
        id="q_1",
        run_id=RunId("one"),
        key="ask#1",
        body=json.dumps({**body, "draft": None}),
        shown="",
        asked_at=0,
        due_at=None,
        state=QuestionState.open,
        decided_at=None,
        decided_by=None,
        note="",
        digest="",
    )
    return Question._of(cast("Store", None), seal_question(row))
