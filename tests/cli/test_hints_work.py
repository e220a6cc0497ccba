"""What people are told to type: it works as it stands, and it is true."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from tests.cli.commands import BLOCKED, Commands
from tests.cli.waiting import park, prepare
from tests.hostile import hints_in

CHANGED = """
import holdfast as hf

@hf.step
async def think(topic: str) -> str:
    return f"new thoughts on {topic}"

@hf.effect
async def publish_elsewhere(text: str) -> int:
    return 1

@hf.agent
async def research(topic: str, n: int = 2) -> dict:
    await think("something else")
    return {"pr": await publish_elsewhere(topic)}
"""


def fail(hf: Commands) -> None:
    assert hf("run", "agents.py:failing", "--id", "one").code == 1


def cut_off(hf: Commands) -> None:
    assert hf("run", "agents.py:research", "tides", "--id", "one", DIE_IN_EFFECT="1").code == -9


def block(hf: Commands, code: str = BLOCKED) -> None:
    """A run whose code was changed while it was in doubt."""
    cut_off(hf)
    (hf.folder / "changed.py").write_text(code)
    assert hf("resume", "one", "changed.py").code == 7


@pytest.mark.parametrize("command", [["resume", "one", "--retry"], ["resume", "--retry", "one"], ["retry", "one"]])
def test_who_retries_without_the_file_is_told_the_command_that_does_it(hf: Commands, command: list[str]) -> None:
    fail(hf)
    refused = hf(*command)
    assert (refused.code, refused.err) == (
        2,
        "error: Run one is of agent 'failing'; its code was not given. Give the file (or --app, HOLDFAST_APP). It was "
        "last executed from this one: holdfast resume one agents.py --retry\n",
    )
    (hf.folder / "mended").touch()
    (said,) = re.findall(r"holdfast resume .*", refused.err)
    assert hf(*shlex.split(said)[1:]).code == 0


def test_a_failed_run_that_is_resumed_without_the_file_names_it(hf: Commands) -> None:
    fail(hf)
    ended = hf("resume", "one")
    assert ended.err.splitlines()[-1].endswith("When the cause is mended: holdfast resume one agents.py --retry")
    (hf.folder / "mended").touch()
    assert hf(*shlex.split(ended.err.rpartition(": ")[2])[1:]).code == 0


@pytest.mark.parametrize("command", ["show", "watch"])
def test_a_failed_run_is_retried_as_it_says(hf: Commands, command: str) -> None:
    fail(hf)
    options = ("--once",) if command == "watch" else ()
    shown = hf.on_terminal(command, "one", *options)
    (said,) = re.findall(r"holdfast resume .*", shown.out)
    assert said == "holdfast resume one agents.py --retry"
    (hf.folder / "mended").touch()
    assert hf(*shlex.split(said)[1:]).code == 0


@pytest.mark.parametrize("command", ["show", "watch"])
def test_a_run_that_was_cut_off_goes_on_as_it_says(hf: Commands, command: str) -> None:
    cut_off(hf)
    options = ("--once",) if command == "watch" else ()
    shown = hf.on_terminal(command, "one", *options)
    (said,) = re.findall(r"holdfast resume .*", shown.out)
    assert said == "holdfast resume one agents.py"
    assert hf(*shlex.split(said)[1:]).code == 8
    said = hf("resolve", "one", "--happened", "7", "--yes").err
    assert said == "The run goes on when a worker takes it up, or now: holdfast resume one agents.py\n"
    assert hf(*shlex.split(said.rpartition(": ")[2])[1:]).code == 0


def test_in_doubt_names_the_file_of_a_run_that_was_cut_off(hf: Commands) -> None:
    cut_off(hf)
    assert hf("in-doubt", "one").err == (
        "Nothing is in doubt. But run one was cut off: `holdfast resume one agents.py` finds out what it left.\n"
    )


def test_a_hint_names_the_store_that_was_given(hf: Commands) -> None:
    ended = hf("--db", "other.db", "run", "agents.py:failing", "--id", "one")
    said = ended.err.splitlines()[-1].rpartition(": ")[2]
    assert said == "holdfast resume one agents.py:failing --retry --db other.db"
    (hf.folder / "mended").touch()
    assert hf(*shlex.split(said)[1:]).code == 0


def test_a_password_is_not_repeated_in_a_hint(hf: Commands) -> None:
    said = hf("show", "one", "--db", "postgresql://me:secret@127.0.0.1:1/none").err
    assert "secret" not in said


def test_whoever_meets_a_need_is_told_if_nobody_goes_on_with_it(hf: Commands) -> None:
    prepare(hf)
    advice = "No worker is alive to take it up. Start one: holdfast worker waiting.py; or execute it here: "
    for agent, run_id, meet in (
        ("sure", "one", ("answer", "one", "yes")),
        ("careful", "two", ("decline", "two")),
        ("publish", "three", ("send", "three", "approved", "true")),
    ):
        park(hf, agent, run_id)
        ended = hf(*meet)
        assert (ended.code, ended.err) == (0, f"{advice}holdfast resume {run_id} waiting.py\n")
        assert hf(*shlex.split(ended.err.rpartition(": ")[2])[1:]).code == 0


@pytest.mark.parametrize("act", [("answer", "one", "no"), ("decline", "one")], ids=["answer", "decline"])
def test_a_second_answer_by_the_runs_name_hears_who_was_first(hf: Commands, act: tuple[str, ...]) -> None:
    prepare(hf)
    park(hf, "sure", "one")
    assert hf("answer", "one", "yes", "--by", "eva", "--note", "seen").code == 0
    ended = hf(*act)
    said = re.sub(r"q_[0-9a-f]+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "…", ended.err)
    assert (ended.code, said) == (
        5,
        "error: Question … of run one was answered by eva at …: seen. Nothing was changed.\n",
    )


def test_a_run_that_asks_several_questions_lists_them(hf: Commands) -> None:
    (hf.folder / "two.py").write_text(
        "import asyncio\nimport holdfast as hf\n@hf.agent\nasync def two() -> list:\n"
        "    return list(await asyncio.gather(hf.ask('First?'), hf.ask('Second?')))\n"
    )
    assert hf("run", "two.py", "--id", "one").code == 7
    ended = hf("answer", "one", "yes")
    said = sorted(re.sub(r"q_[0-9a-f]+", "q_ID", ended.err).splitlines())
    assert (ended.code, said) == (
        3,
        ["  q_ID  First?", "  q_ID  Second?", "error: Run one asks 2 questions; name the one you mean:"],
    )


# blocked


def lists(hf: Commands, executed: str) -> str:
    return f"""The code asked for:
{executed}  publish_elsewhere  {hf.folder}/changed.py:LINE
The journal has, and the code did not ask for it:
  publish#1  {{"text":"tides"}}  seq N, not known whether it happened
"""


WAYS = (
    'Guard the new code with `if hf.patched("some-id"):`, restore the call, or settle an open effect with '
    "`holdfast resolve one KEY`; then `holdfast resume one changed.py`.\n"
)


@pytest.mark.parametrize(
    ("code", "before", "executed"),
    [
        (BLOCKED, "", "Nothing was executed."),
        (
            CHANGED,
            "  think  {folder}/changed.py:LINE\n",
            "Before that 1 call was executed, and what came of it is kept.",
        ),
    ],
    ids=["nothing", "a step"],
)
def test_a_blocked_run_shows_both_lists_and_what_was_executed(
    hf: Commands, code: str, before: str, executed: str
) -> None:
    block(hf, code)
    says = f"{lists(hf, before.format(folder=hf.folder))}{executed} {WAYS}"

    def lines(text: str) -> str:
        return re.sub(r"seq \d+", "seq N", re.sub(r"\.py:\d+", ".py:LINE", text))

    assert lines(hf("show", "one").err) == says
    assert lines(hf.on_terminal("show", "one", columns=400).out).endswith(f"\n\n{says}")
    again = lists(hf, before.format(folder=hf.folder))
    ended = hf("resume", "one", "changed.py")
    assert (ended.code, lines(ended.err).partition("\n")[2]) == (
        7,
        f"Run one is blocked: replay mismatch.\n{again}Nothing was executed. {WAYS}",
    )
    assert len(list(hints_in(says))) == 2


# plain JSON


def tags_in(value: Any) -> list[str]:
    """Tags, and text that is JSON of an object or a list."""
    match value:
        case dict():
            return [
                *(key for key in value if key.startswith("$")),
                *(t for each in value.values() for t in tags_in(each)),
            ]
        case list():
            return [tag for each in value for tag in tags_in(each)]
        case str() if value.startswith(("{", "[")):
            return [value]
        case _:
            return []


TYPED = """
import holdfast as hf

@hf.effect
async def pay(what: tuple[int, str]) -> tuple[int, str]:
    raise OSError("away")

@hf.agent
async def odd(pair: tuple[int, str]) -> tuple[int, bytes, float, set[int]]:
    await hf.ask("Sure?", dict, show={"pair": pair})
    try:
        await pay(pair)
    except hf.StepError:
        pass
    return (1, b"\\xff", float("inf"), {7})
"""


def test_json_is_plain(hf: Commands) -> None:
    (hf.folder / "odd.py").write_text(TYPED)
    assert hf("run", "odd.py", '[1, "a"]', "--id", "one").code == 7
    assert hf("questions", "--json").json["items"][0]["show"] == {"pair": [1, "a"]}
    assert hf("answer", "one", '{"a": [1]}').code == 0
    assert hf("resume", "one", "odd.py").code == 8
    assert hf("show", "one", "--json").json["in_doubt"][0]["args"] == {"what": [1, "a"]}
    assert hf("in-doubt", "--json").json["items"][0]["args"] == {"what": [1, "a"]}
    assert hf("resolve", "one", "--fail", "gone", "--yes").code == 0
    ended = hf("resume", "one", "odd.py", "--json")
    strict = json.loads(ended.out, parse_constant=lambda name: pytest.fail(name))
    shown = hf("show", "one", "--json").json
    assert shown["input"] == {"pair": [1, "a"]}
    assert shown["result"] == strict["result"] == [1, "_w==", "Infinity", [7]]
    assert tags_in(shown) == []
    assert tags_in(hf("show", "one", "--journal", "--json").json) == []
    assert "input   " + '{"pair":[1,"a"]}' in hf.on_terminal("show", "one").out


def test_what_a_blocked_run_has_is_plain_too(hf: Commands) -> None:
    block(hf)
    reason = hf("show", "one", "--json").json["run"]["reason"]
    assert reason["recorded"][0]["args"] == {"text": "tides"}
    assert (reason["executed"], reason["asked"]) == (0, "publish_elsewhere")


def test_sentences_fit_a_terminal_and_commands_stay_whole(hf: Commands) -> None:
    block(hf)
    prepare(hf)
    park(hf, "sure", "case-of-the-missing-lighthouse")
    answered = hf.on_terminal("answer", "case-of-the-missing-lighthouse", "--yes", columns=80).out
    assert answered.splitlines()[1:] == [
        "No worker is alive to take it up. Start one: holdfast worker waiting.py; or",
        "execute it here: holdfast resume case-of-the-missing-lighthouse waiting.py",
    ]
    for command in (["in-doubt"], ["queues"], ["schedules"], ["triggers"], ["runs"], ["show", "one"], ["workers"]):
        shown = hf.on_terminal(*command, columns=80).out
        sentences = [line for line in _bare(shown).splitlines() if not line.startswith("  ")]  # the others are lists
        assert [line for line in sentences if len(line) > 80] == [], command


def _bare(shown: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*[mK]", "", shown)
