"""The calls of a run that was killed and went on, as `holdfast show RUN --json` tells them."""

from __future__ import annotations

import signal
from typing import Any

from tests.cli.commands import Commands

KILLED = """
import asyncio
import os

import holdfast as hf

def die_once(name: str) -> None:
    if not os.path.exists(name):
        open(name, "w").close()
        os.kill(os.getpid(), 9)

@hf.step
async def think(n: int) -> int:
    hf.usage(model="m", input_tokens=10, output_tokens=5, cost=0.5)
    return n

@hf.step
async def ponder() -> str:
    await asyncio.sleep(0.3)
    die_once("step")
    return "so"

@hf.effect
async def send(n: int) -> str:
    die_once("effect")
    return "sent"

@send.verify
async def look(n: int) -> hf.Verdict[str]:
    return hf.landed("sent")

@hf.agent
async def unlucky() -> list:
    return [*await asyncio.gather(think(1), think(2)), await ponder(), await send(3)]
"""


def calls_in(hf: Commands, run_id: str) -> dict[str, dict[str, Any]]:
    shown = hf("show", run_id, "--json").json
    return {call["key"]: call for call in shown["calls"]}


def test_after_each_kill_the_calls_say_who_executed_them(hf: Commands) -> None:
    (hf.folder / "unlucky.py").write_text(KILLED)
    assert hf("run", "unlucky.py", "--id", "u").code == -signal.SIGKILL
    cut_off = calls_in(hf, "u")
    assert (cut_off["ponder#1"]["is_open"], cut_off["ponder#1"]["outcome"]) == (True, None)
    assert hf("resume", "u", "unlucky.py").code == -signal.SIGKILL
    in_doubt = calls_in(hf, "u")["send#1"]
    assert [attempt["end"] for attempt in in_doubt["attempts"]] == ["open"]
    assert hf("resume", "u", "unlucky.py").code == 0

    found = calls_in(hf, "u")
    assert list(found) == ["think#1", "think#2", "ponder#1", "send#1"]
    for key in ("think#1", "think#2"):
        assert found[key]["executed_in"] == [1]
        assert found[key]["answered"] == {"first_epoch": 2, "last_epoch": 3, "times": 2}
        assert found[key]["usage"] == {"models": ["m"], "input_tokens": 10, "output_tokens": 5, "cost": 0.5}
    ponder, send = found["ponder#1"], found["send#1"]
    assert [(each["epoch"], each["end"]) for each in ponder["attempts"]] == [(1, "cut_off"), (2, "done")]
    assert ponder["attempts"][0]["ended_at"] is None
    assert ponder["answered"] == {"first_epoch": 3, "last_epoch": 3, "times": 1}
    assert (send["kind"], send["outcome"], send["is_open"], send["executed_in"]) == ("effect", "done", False, [2, 3])
    assert [(each["verdict"], each["by"]) for each in send["settlements"]] == [("landed", "verify")]
    assert send["settlements"][0]["evidence"]["cause"] == "crash"
    assert send["answered"] is None


def test_what_a_person_settled_is_among_the_calls(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    assert calls_in(hf, "one")["publish#1"]["held"]["cause"] == "crash"
    assert hf("resolve", "one", "--happened", "91", "--note", "seen", "--by", "eva", "--yes").code == 0
    assert hf("resume", "one", "agents.py").code == 0
    (settled,) = calls_in(hf, "one")["publish#1"]["settlements"]
    assert (settled["actor"], settled["note"], settled["verdict"]) == ("eva", "seen", "landed")
    assert settled["text"] == "in doubt (crash) → it happened, says eva: seen"
