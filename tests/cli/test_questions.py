"""`questions`, `answer`, `decline`."""

from __future__ import annotations

import json

import pytest

from tests.cli.commands import Commands
from tests.cli.waiting import park, prepare


@pytest.fixture
def hf(hf: Commands) -> Commands:
    return prepare(hf)


def ask(hf: Commands, agent: str, run_id: str = "one") -> str:
    """A run that asks; the question's id."""
    park(hf, agent, run_id)
    found: str = hf("questions", run_id, "--json").json["items"][0]["id"]
    return found


def result(hf: Commands, run_id: str = "one") -> str:
    ended = hf("resume", run_id, "waiting.py", "--timeout", "60")
    assert ended.code == 0, ended.err
    return ended.out.strip()


def test_open_questions_are_lines_a_table_or_json(hf: Commands) -> None:
    first, second = ask(hf, "sure"), ask(hf, "order", "two")
    lines = [line.split("\t") for line in hf("questions").out.splitlines()]
    assert [(line[0], line[2], line[3], line[6], line[7]) for line in lines] == [
        (first, "one", "sure", "yesno", "Sure?"),
        (second, "two", "order", "form", "What shall I order?"),
    ]
    park(hf, "hurried", "three")
    shown = hf.on_terminal("questions", columns=90).out
    assert "in 1d" in shown
    assert "3 questions" in shown
    third = hf("questions", "three", "--json").json["items"][0]["id"]
    assert max(map(len, shown.splitlines())) <= 90
    assert [q["id"] for q in hf("questions", "two", "--json").json["items"]] == [second]
    hf("answer", first, "yes")
    assert [q["id"] for q in hf("questions", "--json").json["items"]] == [second, third]
    decided = hf("questions", "--all", "--json").json["items"][0]
    assert (decided["id"], decided["state"]) == (first, "answered")


def test_one_question_is_shown_with_what_it_takes_and_how_to_answer(hf: Commands) -> None:
    question = ask(hf, "order")
    shown = hf.on_terminal("questions", question[:8]).out
    for each in ("What shall I order?", "title", "what it is called", "pages", "whole number", "default false"):
        assert each in shown
    assert f"holdfast answer {question} title=… pages=…" in shown
    assert f"holdfast decline {question}" in shown
    facts = dict(line.split("\t", 1) for line in hf("questions", question).out.splitlines())
    assert facts["prompt"] == "What shall I order?"
    assert (
        hf("questions", question, "--json").json["schema"]["properties"]["pages"]
        == json.loads(facts["schema"])["properties"]["pages"]
    )
    question = ask(hf, "sure", "two")
    shown = hf.on_terminal("questions", question).out
    assert '"page": 3' in shown
    assert f"holdfast answer {question} 'yes|no'" in shown


@pytest.mark.parametrize(
    ("agent", "arguments", "expected"),
    [
        ("sure", ["yes"], "sure: True"),
        ("sure", ["--no"], "sure: False"),
        ("sure", ["--json-value", "true"], "sure: True"),
        ("checked", ["no", "--by", "eva", "--note", "too long"], "False eva too long"),
        ("place", ["production"], "production"),
        ("place", ["1"], "staging"),
        ("order", ["title=On tides", "pages=3"], '{"title":"On tides","pages":3,"is_urgent":false}'),
        ("order", ['{"title": "x", "pages": 1}'], '{"title":"x","pages":1,"is_urgent":false}'),
        ("letter", ["Dear", "Ann,"], "Dear Ann,"),
        ("letter", ["--yes"], "Dear all,"),
    ],
)
def test_an_answer_is_understood_as_the_question_says(
    hf: Commands, agent: str, arguments: list[str], expected: str
) -> None:
    ended = hf("answer", ask(hf, agent), *arguments)
    assert ended.code == 0, ended.err
    assert "run one goes on" in ended.out
    found = result(hf)
    assert (json.loads(found) if expected.startswith("{") else found) == (
        json.loads(expected) if expected.startswith("{") else expected
    )


def test_a_run_that_asks_one_question_names_it_and_stdin_has_the_answer(hf: Commands) -> None:
    ask(hf, "letter")
    assert hf("answer", "one", "-", stdin="Dear nobody,\n").code == 0
    assert result(hf) == "Dear nobody,"


@pytest.mark.parametrize(
    ("agent", "arguments", "word"),
    [
        ("sure", [], "yes|no"),
        ("place", [], "staging|production"),
        ("order", [], "title=… pages=…"),
        ("sure", ["perhaps"], "yes or no"),
        ("place", ["moon"], "1 staging, 2 production"),
        ("place", ["--yes"], "staging|production"),
        ("order", ["pages=3"], "Missing: title"),
        ("order", ["--json-value", '{"title": 5, "pages": 1}'], "title"),
        ("order", ["--json-value", "{"], "not JSON"),
        ("sure", ["yes", "--no"], "once"),
    ],
)
def test_without_a_terminal_what_is_missing_or_wrong_is_named(
    hf: Commands, agent: str, arguments: list[str], word: str
) -> None:
    ended = hf("answer", ask(hf, agent), *arguments)
    assert ended.code == 2, ended.err
    assert word in ended.err
    assert len(hf("questions").out.splitlines()) == 1, "nothing was decided"


def test_on_a_terminal_the_fields_are_asked_for_one_by_one_until_they_fit(hf: Commands) -> None:
    question = ask(hf, "order")
    ended = hf.on_terminal("answer", question, typed="On tides\nmany\n3\nyes\n")
    assert ended.code == 0, ended.out
    assert "title (text, what it is called)" in ended.out
    assert "pages takes" in ended.out, "a wrong one is asked for again"
    assert json.loads(result(hf)) == {"title": "On tides", "pages": 3, "is_urgent": True}


def test_on_a_terminal_options_and_drafts_are_chosen(hf: Commands) -> None:
    ended = hf.on_terminal("answer", ask(hf, "place"), typed="2\n")
    assert "1  staging" in ended.out
    assert result(hf) == "production"
    hf.on_terminal("answer", ask(hf, "letter", "two"), typed="a\n")
    assert result(hf, "two") == "Dear all,"
    hf.on_terminal("answer", ask(hf, "letter", "three"), typed="e\n", EDITOR="sed -i s/all/none/")
    assert result(hf, "three") == "Dear none,"


def test_the_second_to_answer_hears_who_was_first(hf: Commands) -> None:
    question = ask(hf, "sure")
    assert hf("answer", question, "yes", "--by", "eva", "--note", "fine").code == 0
    for arguments in (["answer", question, "no"], ["decline", question]):
        ended = hf(*arguments)
        assert ended.code == 5
        assert "answered by eva" in ended.err
        assert "fine" in ended.err
    assert result(hf) == "sure: True"


def test_a_question_is_declined_with_a_reason(hf: Commands) -> None:
    question = ask(hf, "careful")
    assert hf("decline", question, "--by", "eva", "--note", "not today").code == 0
    found = result(hf)
    assert "eva" in found
    assert "not today" in found
    told = hf("show", "one").out + hf("show", "one", "--story").out
    assert "declined" in told.lower()


def test_an_unknown_question_is_not_found(hf: Commands) -> None:
    ask(hf, "sure")
    for arguments in (["questions", "q_nobody"], ["answer", "q_nobody", "yes"], ["decline", "nobody"]):
        assert hf(*arguments).code == 3
