"""`stream` and `thread`."""

from __future__ import annotations

import json

import pytest

from tests.cli.commands import Commands

AGENTS = """
import asyncio
import holdfast as hf


@hf.step
async def tell(text: str) -> str:
    for word in text.split():
        hf.stream().write(word + " ")
        hf.stream("loud").write(word.upper())
    return text


@hf.agent
async def teller(text: str) -> str:
    memory = hf.thread(str)
    await memory.append(text, text * 2)
    await memory.summarise("short", upto=1)
    return await tell(text)


@hf.step
async def half(text: str) -> None:
    hf.stream().write(text)
    raise ValueError("no more")


@hf.agent
async def failing(text: str) -> None:
    await half(text)


@hf.agent
async def silent() -> None:
    pass


@hf.step
async def log(text: str) -> None:
    hf.stream("log").write(text)


@hf.agent
async def asking() -> None:
    if await hf.ask("Shall I?"):
        await log("all is well")
"""


def told(hf: Commands) -> None:
    (hf.folder / "tellers.py").write_text(AGENTS)
    assert hf("run", "tellers.py:teller", "the\x1b[31m sea", "--id", "one", "--thread", "chat").code == 0
    assert hf("run", "tellers.py:failing", "half", "--id", "two").code == 1
    assert hf("run", "tellers.py:silent", "--id", "three").code == 0


def test_a_stream_is_printed_as_it_was_written(hf: Commands) -> None:
    told(hf)
    assert hf("stream", "one").out == "the\\x1b[31m sea "
    assert hf("stream", "one", "loud").out == "THE\\x1b[31MSEA"
    assert hf("stream", "one", "output", "--offset", "1", "--follow").out == "sea "
    events = [json.loads(line) for line in hf("stream", "one", "--json").out.splitlines()]
    assert [(each["number"], each["kind"], each["key"]) for each in events] == [
        (1, "text", "tell#1"),
        (2, "text", "tell#1"),
        (3, "end", "tell#1"),
    ]
    assert events[0]["text"] == "the\x1b[31m "
    failed = hf("stream", "two", "--offset", "0")
    assert (failed.out, failed.code) == ("half", 0)
    assert "[half#1 was cut off (error): its text so far does not count]" in failed.err
    for words, why in (
        (("one", "other"), "no stream 'other'. It has loud, output."),
        (("three",), "It has none: none of its bodies wrote yet."),
        (("nobody",), "There is no run 'nobody'"),
    ):
        refused = hf("stream", *words)
        assert refused.code == 3
        assert why in refused.err
    assert hf("stream", "one", "--offset", "-1").code == 2


@pytest.mark.parametrize(
    ("answer", "out", "err"),
    [
        ("yes", "all is well", ""),
        pytest.param("no", "", "error: Run one has no stream 'output'. It has none", marks=pytest.mark.prove),
    ],
)
def test_who_follows_a_run_before_it_writes_gets_what_it_writes(hf: Commands, answer: str, out: str, err: str) -> None:
    (hf.folder / "tellers.py").write_text(AGENTS)
    assert hf("run", "tellers.py:asking", "--id", "one").code == 7
    following = hf.start("stream", "one", "--follow")
    assert hf("answer", "one", answer).code == 0
    assert hf("resume", "one", "tellers.py").code == 0
    told, why = following.communicate(timeout=60)
    assert (told, why[: len(err) or None], following.returncode) == (out, err, 3 if err else 0)


def test_a_thread_is_printed_with_its_numbers(hf: Commands) -> None:
    told(hf)
    lines = [line.split("\t") for line in hf("thread", "chat").out.splitlines()]
    assert [(line[0], line[2], line[3], line[4]) for line in lines] == [
        ("1", "one", "", '"the\\u001b[31m sea"'),
        ("2", "one", "", '"the\\u001b[31m seathe\\u001b[31m sea"'),
        ("3", "one", "1", '"short"'),
    ]
    items = hf("thread", "chat", "--since", "1", "--json").json["items"]
    assert [(each["number"], each["covers"]) for each in items] == [(2, None), (3, 1)]
    assert items[1]["message"] == "short"
    shown = hf.on_terminal("thread", "chat", columns=100).out
    assert "sums up 1 to 1" in shown
    assert "the\\x1b[31m sea" in shown
    nothing = hf("thread", "other")
    assert (nothing.code, "Nothing was said" in nothing.err) == (3, True)
    assert "That is a run; its thread is 'chat'." in hf("thread", "one").err
