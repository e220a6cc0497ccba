"""Plans, receipts and budgets on the command line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.cli.commands import Commands

PROGRAM = """
import os
import holdfast as hf

@hf.step
async def think(n: int) -> int:
    hf.usage(model=os.environ.get("MODEL", "m-1"), input_tokens=10, cost=0.5)
    return n

@hf.effect(on_doubt="retry", settle=0)
async def publish(n: int) -> int:
    if n == 1 and os.environ.get("DIE"):
        os.kill(os.getpid(), 9)
    return n

@hf.agent(budget=hf.Budget(cost=2.0))
async def works() -> list[str]:
    await hf.guard("spec", hf.guards.file("spec.md"))
    todo = await hf.plan(["read the tests", "fix the bug"])
    await todo.tick(1, "3 failed")
    for n in range(6):
        await think(n)
        await publish(n)
    await todo.refresh()
    return [item.text for item in todo.items]

@hf.agent
async def asks() -> None:
    await hf.plan(["fix the bug"])
    await hf.ask("go on?")

@hf.agent
async def plain() -> int:
    return await think(1)
"""
EDIT = """
import sys
path = sys.argv[1]
text = open(path).read()
open(path, "w").write(text.replace("- [ ] 2: fix the bug", "- [ ] talk to Ann\\n- [ ] 2: fix both bugs"))
"""


def test_a_run_is_planned_cut_off_changed_and_paid_for(hf: Commands) -> None:
    (hf.folder / "works.py").write_text(PROGRAM)
    (hf.folder / "edit.py").write_text(EDIT)
    (hf.folder / "break.py").write_text("import sys\nopen(sys.argv[1], 'a').write('- [ ] 9: nine')\n")
    assert hf("run", "works.py:works", "--id", "w", DIE="1").code == -9
    shown = hf("plan", "w")
    assert (shown.code, shown.out) == (0, "# Plan of w\n\n- [x] 1: read the tests (3 failed)\n- [ ] 2: fix the bug\n")

    broken = hf("plan", "w", "--edit", EDITOR=f"{sys.executable} break.py")
    assert broken.code == 2
    assert re.search(r"there is no item 9\..* Nothing was sent; your text is in \S+\.md", broken.err), broken.err
    for nothing in ("true", "truncate -s 0"):  # left as it was; emptied
        same = hf("plan", "w", "--edit", EDITOR=nothing)
        assert (same.code, same.out) == (0, "Nothing was changed.\n")
    assert hf("plan", "w", "--note", "why").code == 2
    sent = hf("plan", "w", "--edit", "--by", "ann", "--json", EDITOR=f"{sys.executable} edit.py")
    assert [op["op"] for op in sent.json["ops"]] == ["add", "rewrite"]
    assert hf("plan", "w").err == "With changes by ann that the run has not taken yet.\n"
    assert hf("plan", "w", "--json").json["pending"] == ["ann"]

    (hf.folder / "spec.md").write_text("new")
    blocked = hf("resume", "w", "works.py", MODEL="m-2")
    assert blocked.code == 7, blocked
    assert "The budget of run w is used up: 2 of 2 cost." in blocked.err
    assert "holdfast resume w --budget cost=AMOUNT" in blocked.err
    assert hf("show", "w").code == 0

    for wrong, said in (
        ("cost", "takes a number; got ''"),
        ("tokens=1.5", "takes a whole number; got '1.5'"),
        ("money=5", "takes tokens, cost or steps, each once"),
        ("cost=5,cost=6", "each once"),
        ("cost=-5", "is not negative"),
        ("cost=1", "has used 2 cost already"),
    ):
        refused = hf("resume", "w", "--budget", wrong)
        assert refused.code == 2, refused
        assert said in refused.err + refused.out
    assert hf("resume", "--all", "--budget", "cost=9").code == 2
    raised = hf("resume", "w", "--budget", "cost=2.5,steps=50", "--by", "ann")
    assert (raised.code, raised.out.split("\t")[:2]) == (0, ["w", "queued"]), raised
    done = hf("resume", "w", "works.py", "--budget", "cost=9")
    assert done.code == 0, done
    assert "fix both bugs" in done.out

    found = hf("receipt", "w", "--json").json
    first = found["items"][0]
    assert (found["run"], first["lost"] is not None, first["woken"]) == ("w", True, False)
    assert first["gap"][0]["was"] == "missing"
    assert {"what": "model of think", "was": "m-1", "now": "m-2"} in first["versions"]
    assert first["in_doubt"] == [{"key": "publish#2", "verdict": "retry", "by": "on_doubt"}]
    assert first["saved_cost"] == 1.0
    lines = [line.split("\t") for line in hf("receipt", "w").out.splitlines()]
    assert {line[2] for line in lines} >= {"down", "calls", "in doubt", "saved", "version", "changed"}
    assert [line[3] for line in lines if line[2] == "in doubt"] == ["publish#2: done again, says its rule"]
    table = hf.on_terminal("receipt", "w").out
    assert "spec: missing → 3 bytes, sha256" in table
    assert "1 thing changed outside (holdfast receipt RUN)" in hf.on_terminal("show", "w").out.replace(
        "\n", " "
    ).replace("  ", " ")


def test_what_is_written_into_a_plan_is_kept_when_its_run_ends_meanwhile(hf: Commands) -> None:
    (hf.folder / "works.py").write_text(PROGRAM)
    cancel = "import subprocess\nsubprocess.run([sys.executable, '-m', 'holdfast', 'cancel', 'w'], check=True)\n"
    (hf.folder / "edit.py").write_text(EDIT.replace(" 2:", " 1:") + cancel)
    assert hf("run", "works.py:asks", "--id", "w").code == 7
    late = hf("plan", "w", "--edit", EDITOR=f"{sys.executable} edit.py")
    assert late.code == 5, late
    kept = re.search(r"Nothing was sent; your text is in (\S+\.md)", late.err)
    assert kept, late
    try:
        assert "talk to Ann" in Path(kept[1]).read_text()
    finally:
        Path(kept[1]).unlink()
    (hf.folder / "edit.py").write_text("raise SystemExit('nobody is asked to write')")
    again = hf("plan", "w", "--edit", EDITOR=f"{sys.executable} edit.py")
    assert again.code == 5, again
    assert "Run w is cancelled; its plan is not changed any more." in again.err


def test_what_is_not_there_is_told(hf: Commands) -> None:
    (hf.folder / "works.py").write_text(PROGRAM)
    assert hf("run", "works.py:plain", "--id", "p").code == 0
    missing = hf("plan", "p")
    assert missing.code == 3
    assert missing.err == "error: Run p has no plan: its agent has not called hf.plan() yet.\n"
    assert hf("receipt", "p", "--json").json == {"run": "p", "items": []}
    assert "was never taken up again" in hf.on_terminal("receipt", "p").out
    late = hf("resume", "p", "--budget", "cost=5")
    assert (late.code, "it uses nothing any more" in late.out) == (2, True), late
