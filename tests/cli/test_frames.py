"""What `watch` and `runs` say of runs, at any width."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.base.clock import as_time
from holdfast.cli.frames import bar, run_lines, share_of, snapshot_lines
from holdfast.cli.text import width
from holdfast.cli.timeline import Line, painted
from holdfast.history.info import RunInfo, info_of
from holdfast.history.snapshot import Snapshot, in_order
from holdfast.history.timeline import TimelineItem
from holdfast.history.waiting import needs_answer, now_of
from holdfast.model import Status, reasons
from holdfast.testing.samples import START, unborn

NOW = as_time(START) + timedelta(seconds=90)
LATER = START + 3 * 3600 * 1_000_000


def a_run(run_id: str, status: Status, *, reason: dict[str, Any] | None = None, **summary: Any) -> RunInfo:
    why = None if reason is None else reasons.of(reason)
    return info_of(replace(unborn(run_id), status=status, reason=why, agent="research", summary=summary))


def a_scene(*infos: RunInfo, ended: int = 0) -> Snapshot:
    over = [a_run(f"r_ended{n}", Status.done, steps=3) for n in range(ended)]
    return Snapshot(NOW, in_order(infos), over, False, 2, {"mail": 12}, 1)


def text_of(lines: list[Line]) -> list[str]:
    return [painted(line, False) for line in lines]


ASKING = a_run(
    "r_asking0000000",
    Status.waiting,
    reason={"why": "question", "waits": [{"kind": "question", "key": "hf:ask#1", "prompt": "Publish PR 91?"}]},
)
MANY = (
    a_run("r_running0000000", Status.running, steps=6, cost=0.42, progress={"done": 4, "total": 10, "note": "pages"}),
    a_run("r_queued00000000", Status.queued),
    ASKING,
    a_run("r_paused00000000", Status.paused, reason={"why": "paused", "by": "eva", "note": "the API is down"}),
)


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        (Status.waiting, {"waits": [{"kind": "signal", "name": "approved"}]}, "signal approved"),
        (Status.waiting, {"waits": [{"kind": "signal", "name": "go", "due": LATER}]}, "signal go, until "),
        (Status.waiting, {"waits": [{"kind": "child", "child": "r_kid"}]}, "child r_kid"),
        (Status.waiting, {"waits": [{"kind": "question", "prompt": "Send it?"}]}, "asks: Send it?"),
        (Status.sleeping, {"waits": [{"kind": "timer", "due": LATER}]}, "(in 2h58m)"),
        (Status.sleeping, {"due": LATER}, "(in 2h58m)"),
        (Status.paused, {"why": "paused", "by": "eva", "note": "later"}, "by eva: later"),
        (Status.paused, {"by": "eva", "waits": [{"kind": "signal", "name": "go"}]}, "by eva · signal go"),
        (Status.waiting, {"waits": [{"kind": "signal", "name": n} for n in "abcd"]}, "signal a, signal b and 2 more"),
        (Status.waiting, {"waits": []}, ""),
    ],
)
def test_a_run_says_what_it_waits_for(status: Status, reason: dict[str, Any], told: str) -> None:
    assert told in now_of(a_run("r_1", status, reason=reason), now=NOW)


def test_only_a_question_needs_an_answer() -> None:
    assert needs_answer(ASKING)
    assert not needs_answer(a_run("r_1", Status.waiting, reason={"waits": [{"kind": "signal", "name": "x"}]}))


def test_what_needs_a_person_comes_first() -> None:
    order = [info.id for info in in_order([*MANY, a_run("r_doubt", Status.in_doubt)])]
    assert set(order[:2]) == {"r_asking0000000", "r_doubt"}
    assert order[2] == "r_running0000000"


@pytest.mark.parametrize("columns", [30, 40, 50, 60, 80, 100, 140, 200])
def test_every_width_fits_and_keeps_status_and_run(columns: int) -> None:
    lines = text_of(snapshot_lines(a_scene(*MANY, ended=3), columns, 40))
    assert max(width(line.rstrip()) for line in lines) <= columns
    table = lines[2:]
    assert table[0].startswith("STATUS")
    assert any("running" in line and "r_running" in line for line in table)


def test_a_wide_terminal_has_all_columns_and_a_narrow_one_fewer() -> None:
    wide = "\n".join(text_of(snapshot_lines(a_scene(*MANY), 140, 40)))
    for each in ("AGENT", "PROGRESS", "CALLS", "AGE", "COST", "━━━━────── 40%", "$0.42", "asks: Publish PR 91?"):
        assert each in wide
    assert "2 workers" in wide
    assert "queue mail: 12" in wide
    assert "1 question (holdfast questions)" in wide
    narrow = "\n".join(text_of(snapshot_lines(a_scene(*MANY), 60, 40)))
    assert "PROGRESS" not in narrow
    assert "NOW" in narrow


@pytest.mark.parametrize("rows", [8, 12, 24])
def test_the_frame_fits_the_height_and_says_what_is_left_out(rows: int) -> None:
    snapshot = a_scene(*(a_run(f"r_{n:04d}", Status.queued) for n in range(50)))
    lines = text_of(snapshot_lines(snapshot, 100, rows))
    assert len(lines) <= rows - 1
    shown = sum("queued" in line for line in lines[3:])
    assert f"… {50 - shown} more: holdfast runs" in lines[-1]


def test_an_empty_store_says_so() -> None:
    assert text_of(snapshot_lines(a_scene(), 80, 24))[-1] == "No runs."


def test_a_bar_is_never_fuller_than_full() -> None:
    assert share_of({"done": 12, "total": 10}) == 1
    assert share_of({"done": 1, "total": None}) is None
    assert share_of({"done": 1, "total": 0}) is None
    assert share_of(None) is None
    assert bar(0) == "────────── 0%"
    assert bar(1) == "━━━━━━━━━━ 100%"


def a_call(number: int, status: str = "done") -> TimelineItem:
    took = 0.5 if status == "done" else None
    at = as_time(START) + timedelta(seconds=number)
    return TimelineItem(at, number, f"call{number}#1", f"call{number}", "step", status, took, 1, "")


def test_one_run_shows_its_latest_calls_and_how_long_the_open_one_takes() -> None:
    timeline = [*(a_call(number) for number in range(60)), a_call(80, "running")]
    lines = text_of(run_lines(MANY[0], timeline, NOW, 80, 24))
    assert len(lines) <= 23
    assert max(width(line) for line in lines) <= 80
    assert "research" in lines[0]
    assert "━━━━━━━━──────────── 40%" in lines[1]
    assert any("earlier: holdfast show r_running0000000" in line for line in lines)
    assert "call80#1" in lines[-1]
    assert "10s" in lines[-1], "it began ten seconds ago"


def test_a_run_that_needs_a_person_names_the_command() -> None:
    asking = replace(ASKING, reason={"waits": [{"kind": "question", "question": "q_123", "prompt": "Sure?"}]})
    assert text_of(run_lines(asking, [a_call(1)], NOW, 80, 24))[-1] == "holdfast answer q_123"
    paused = a_run("r_1", Status.paused)
    assert text_of(run_lines(paused, [], NOW, 80, 24))[-1] == "holdfast resume r_1"


def test_nothing_that_a_run_says_reaches_the_terminal_as_a_command() -> None:
    evil = a_run("r_1", Status.running, now="\x1b]0;owned\x07 \u202e")
    for lines in (snapshot_lines(a_scene(evil), 120, 24), run_lines(evil, [], NOW, 120, 24)):
        assert not set("\x1b\x07\u202e") & set("".join(text_of(lines)))
