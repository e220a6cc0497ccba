"""Effects that raise: what a person is told, and how to say that an exception does prove something."""

from __future__ import annotations

import pytest

from tests.cli.commands import Commands

AGENTS = """
import asyncio
import json
import sys

import holdfast as hf


class Refused(Exception):
    pass


@hf.effect
async def own() -> int:
    raise Refused("no money")


@hf.effect
async def deep() -> int:
    return json.loads("{")


@hf.effect
def plain() -> int:
    raise ConnectionError("no route")


@hf.effect
async def leaves() -> int:
    sys.exit(3)


@hf.effect(timeout=0.05)
async def slow() -> int:
    await asyncio.sleep(60)


@hf.effect(on_doubt="fail")
async def fails() -> int:
    raise Refused("no money")


@hf.effect(raises=Refused)
async def declared() -> int:
    raise Refused("no money")


@hf.effect
async def unsure() -> int:
    raise Refused("no money")


@unsure.verify
async def find() -> bool:
    return True


@hf.agent
async def pay(what: str) -> int:
    return await globals()[what]()
"""

#: effect: (the line it raises at, what it raises, the class to declare)
DOUBTS = {
    "own": (15, "Refused: no money", "Refused"),
    "deep": (
        20,
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "JSONDecodeError",
    ),
    "plain": (25, "ConnectionError: no route", "ConnectionError"),
    "leaves": (30, "SystemExit: 3", ""),
    "slow": (33, "TimeoutError", ""),
}


@pytest.fixture(autouse=True)
def agents(hf: Commands) -> None:
    (hf.folder / "raising.py").write_text(AGENTS)


def sentence(hf: Commands, what: str) -> str:
    line, error, name = DOUBTS[what]
    declare = (
        f" If {name} always means that nothing happened, declare it: @hf.effect(raises=({name},))." if name else ""
    )
    return (
        f"Run one is in doubt about {what}#1: it raised {error} ({hf.folder}/raising.py:{line}), and an exception is "
        "no proof that nothing happened. Look at the evidence with `holdfast in-doubt one`, then settle it with "
        f"`holdfast resolve one '{what}#1'`.{declare if name else ''}"
    )


@pytest.mark.parametrize("what", DOUBTS)
def test_the_message_names_the_exception_and_its_place_and_what_to_declare(hf: Commands, what: str) -> None:
    after = "With --wait, this command waits. To go on after that: holdfast resume one raising.py\n"
    ended = hf("run", "raising.py", what, "--id", "one")
    assert (ended.code, ended.err.partition("\n")[2]) == (8, f"{sentence(hf, what)}\n{after}")
    again = hf("resume", "one", "raising.py")
    assert again.err.partition("\n")[2] == f"{sentence(hf, what)}\n{after}", "resuming does not make a crash of it"
    for columns in (60, 80, 100):
        shown = hf.on_terminal("resume", "one", "raising.py", columns=columns).out
        assert " ".join(sentence(hf, what).split()) in " ".join(shown.split()), "no word is broken"
        lines = [line.rpartition("\x1b[K")[2] for line in shown.splitlines() if f"({hf.folder}/" not in line]
        assert max(map(len, lines)) <= columns
        assert "`holdfast in-doubt one`" in shown, "nor is a command"


def test_lists_of_doubts_tell_it_too(hf: Commands) -> None:
    assert hf("run", "raising.py", "own", "--id", "one").code == 8
    cause = (
        f"exception; Refused: no money ({hf.folder}/raising.py:15); no proof unless it is declared: raises=(Refused,)"
    )
    assert hf("in-doubt").out.split("\t")[5] == cause
    assert hf("in-doubt", "--json").json["items"][0]["cause"] == cause
    assert hf("show", "one", "--json").json["in_doubt"][0]["cause"] == cause
    for command in ("in-doubt", "show"):
        shown = hf.on_terminal(command, "one", columns=80).out
        assert cause in " ".join(shown.split())


def test_a_verify_that_says_nothing_is_told(hf: Commands) -> None:
    ended = hf("run", "raising.py", "unsure", "--id", "one")
    said = "Its verify failed: verify returned bool, not hf.landed(…) or hf.not_landed()."
    assert (ended.code, said in ended.err) == (8, True), ended.err


def test_whoever_says_fail_gets_it_in_the_exception(hf: Commands) -> None:
    ended = hf("run", "raising.py", "fails", "--id", "one")
    assert (ended.code, ended.err.splitlines()[1]) == (
        1,
        "Run one failed: EffectInDoubt: Run one: fails#1 may or may not have happened: it raised Refused: no money "
        f"({hf.folder}/raising.py:40), and an exception is no proof that nothing happened. If Refused always means "
        "that nothing happened, declare it: @hf.effect(raises=(Refused,)).",
    )


SILENT = """
import holdfast as hf


@hf.step
async def late() -> None:
    raise TimeoutError


@hf.agent
async def works(what: str) -> None:
    if what == "itself":
        raise TimeoutError
    await globals()[what]()
"""


@pytest.mark.parametrize("what", ["itself", "late"])
def test_an_exception_without_a_text_is_its_name(hf: Commands, what: str) -> None:
    (hf.folder / "silent.py").write_text(SILENT)
    ended = hf("run", "silent.py", what, "--id", "one")
    assert (ended.code, ended.err.splitlines()[1]) == (1, "Run one failed: TimeoutError")
    assert hf("runs").out.split("\t")[3] == "TimeoutError"


def test_what_is_declared_is_a_failure_with_the_line_that_raised_it(hf: Commands) -> None:
    ended = hf("run", "raising.py", "declared", "--id", "one")
    assert ended.code == 1
    assert ended.err.partition("\n")[2] == (
        f"""Run one failed: Refused: no money
  File "{hf.folder}/raising.py", line 60, in pay
    return await globals()[what]()
           ^^^^^^^^^^^^^^^^^^^^^^^
  File "{hf.folder}/raising.py", line 45, in declared
    raise Refused("no money")
What was done is kept. When the cause is mended: holdfast resume one raising.py --retry
"""
    )
