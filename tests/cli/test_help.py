"""Finding one's way: the list of commands, the version, mistyped commands, narrow terminals."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from holdfast.cli import COMMANDS, OTHER_WORDS, SECTIONS, cli
from holdfast.version import VERSION
from tests.cli.commands import Commands


def contexts() -> Iterator[click.Context]:
    """One of each command that has a help."""
    root = click.Context(cli, info_name="holdfast")
    yield root
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        yield context
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                act = command.get_command(context, each)
                assert act is not None
                yield click.Context(act, info_name=each, parent=context)


def help_at(context: click.Context, columns: int) -> str:
    context.terminal_width = context.max_content_width = columns
    return context.get_help()


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_no_word_is_broken_and_nothing_left_out(columns: int) -> None:
    for context in contexts():
        shown = help_at(context, columns)
        assert shown.split() == help_at(context, 5000).split(), context.command_path
        assert [line for line in shown.splitlines() if len(line) > columns] == [], context.command_path


def test_every_command_is_in_one_group() -> None:
    assert [name for names in SECTIONS.values() for name in names] == list(COMMANDS)


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_the_list_of_commands_is_grouped(hf: Commands, columns: int) -> None:
    shown = hf.on_terminal("--help", columns=columns)
    assert shown.code == 0
    assert [line for line in shown.out.splitlines() if line.endswith(":") and line[0] != " "] == [
        "Options:",
        "Execute runs:",
        "Look at runs:",
        "Tell runs something:",
        "Decide what runs ask:",
        "Workers, and what starts runs:",
        "Look after the store:",
        "This installation:",
    ]
    assert max(map(len, shown.out.splitlines())) <= columns
    piped = hf("--help", COLUMNS=str(columns))
    assert piped.out == shown.out


def test_the_version(hf: Commands) -> None:
    for arguments in (["--version"], ["version"]):
        ended = hf(*arguments)
        assert (ended.code, ended.out, ended.err) == (0, f"holdfast {VERSION}\n", "")


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["rnu"], "There is no command 'rnu'. Did you mean `holdfast run`?"),
        (["quest"], "There is no command 'quest'. Did you mean `holdfast questions`?"),
        (["in_doubt"], "There is no command 'in_doubt'. Did you mean `holdfast in-doubt`?"),
        (["lst"], "There is no command 'lst'. Did you mean `holdfast runs`?"),
        (["approve", "q_1"], "There is no command 'approve'. Did you mean `holdfast answer`?"),
        (["stop", "r1"], "There is no command 'stop'. Did you mean `holdfast pause` or `holdfast cancel`?"),
        (["xyzzy"], "There is no command 'xyzzy'."),
        (["help"], "There is no command 'help'. All commands: holdfast --help; one: holdfast COMMAND --help"),
        (
            ["agents.py:echo", "hello there"],
            "There is no command 'agents.py:echo'. To execute the agent in a file: "
            "holdfast run agents.py:echo 'hello there'",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_a_mistyped_command_is_told_the_nearest(hf: Commands, typed: list[str], says: str) -> None:
    usage = "Usage: holdfast [OPTIONS] COMMAND [ARGS]...\nTry `holdfast --help`.\n"
    ended = hf(*typed)
    assert (ended.code, ended.out, ended.err) == (2, "", f"{usage}error: {says}\n")
    shown = hf.on_terminal(*typed, columns=500)
    assert (shown.code, shown.out) == (2, f"{usage}error: {says}\n")


def test_every_other_word_leads_to_commands() -> None:
    assert {name for names in OTHER_WORDS.values() for name in names} <= set(COMMANDS)
    assert not set(OTHER_WORDS) & set(COMMANDS)


def test_a_mistyped_command_of_a_group_is_told_the_nearest(hf: Commands) -> None:
    ended = hf("schedules", "puase", "daily")
    assert (ended.code, ended.err.splitlines()[-1]) == (2, "error: No such command 'puase'. Did you mean 'pause'?")


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["runs", "--limit", "x"], "Invalid value for '--limit': 'x' is not a valid number."),
        (["runs", "--limit", "0"], "Invalid value for '--limit': 0 is not in the range 1<=x<=1000."),
        (
            ["worker", "agents.py", "--concurrency", "many"],
            "Invalid value for '--concurrency': 'many' is not a valid number.",
        ),
        (["run", "agents.echo"], "There is no module 'agents.echo'. Did you mean `agents:echo`?"),
        (["run", "agents.py.echo"], "There is no module 'agents.py.echo'. Did you mean `agents.py:echo`?"),
        (["worker", "agents.echo"], "There is no module 'agents.echo'. Did you mean `agents:echo`?"),
        (["run", "agents.ecko"], None),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_word_that_does_not_fit_is_told_what_does(hf: Commands, typed: list[str], says: str | None) -> None:
    ended = hf(*typed)
    told = ended.err.splitlines()[-1]
    if says is None:
        assert told == "error: agents.ecko cannot be loaded: No module named 'agents.ecko'; 'agents' is not a package."
    else:
        assert (ended.code, told) == (2, f"error: {says}")


def test_a_long_word_in_a_question_is_not_broken(hf: Commands) -> None:
    link = "https://example.org/" + "a-long-path/" * 12
    (hf.folder / "links.py").write_text(
        "import holdfast as hf\n@hf.agent\nasync def links() -> bool:\n"
        f"    return await hf.ask('Is it all right? {link}')\n"
    )
    assert hf("run", "links.py", "--id", "one").code == 7
    question = hf("questions", "--json").json["items"][0]["id"]
    for columns in (60, 80, 100):
        assert link in hf.on_terminal("questions", question, columns=columns).out.splitlines()
