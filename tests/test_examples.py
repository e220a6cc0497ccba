"""Examples as they are, killed with `kill -9` at chosen moments: they go on, and what they did counts once.

More of them are killed in tests/test_jobs.py (nightly, migration), tests/files (the coding agent), tests/streams (the
chat with memory); some kill themselves (tests/test_docs.py).
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.testing.processes import environment
from tests.scripts import Script
from tests.test_docs import EXAMPLES


def lines(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Of a table next to the runs."""
    connection = apsw.Connection(str(folder / ".holdfast" / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(query))
    finally:
        connection.close()


def nothing(folder: Path) -> None:
    """It has steps only."""


def one_report(folder: Path) -> None:
    (report,) = (folder / "published.txt").read_text().splitlines()
    assert report.endswith("There are two tides a day, and the moon makes them.")


def a_mail_for_each_person(folder: Path) -> None:
    sent = [mail["to"] for mail in lines(folder, "outbox.jsonl")]
    assert sorted(sent) == [f"person{number:02}@example.org" for number in range(60) if number != 13]


def one_payment_that_stays(folder: Path) -> None:
    booked = [line.split()[1:] for line in (folder / "books.txt").read_text().splitlines()]
    assert sorted(booked) == [["-40", "order-1"], ["-90", "order-2"], ["90", "order-2"]]


def a_digest_for_each_morning(folder: Path) -> None:
    assert sorted(mail["day"] for mail in lines(folder, "digests.jsonl")) == [
        f"2026-03-{day:02}" for day in range(3, 10)
    ]


def an_outcome_for_each_delivery(folder: Path) -> None:
    found = rows(folder, "SELECT sort, text FROM outcomes ORDER BY sort")
    assert found == [("answer", "Yes, on Mondays."), ("ticket", "It crashes when I open a file.")]


def an_answer_for_each_message(folder: Path) -> None:
    assert [number for number, _ in rows(folder, "SELECT number, text FROM messages ORDER BY number")] == [1, 2]


def a_row_for_each_document(folder: Path) -> None:
    assert rows(folder, "SELECT count(*), count(DISTINCT name) FROM documents") == [(999, 999)]
    assert Counter(sort for (sort,) in rows(folder, "SELECT sort FROM documents")) == {"letter": 666, "invoice": 333}


@dataclass(frozen=True, slots=True)
class Killed:
    """Where processes are killed before one ends, what that one says at last, and what must have come of it."""

    example: str
    faults: tuple[str, ...]
    said: str
    check: Callable[[Path], None]


KILLED = [
    Killed("parallel_research.py", ("step.after_body:kill@4",), "; ".join(["4 pages, says small"] * 3), nothing),
    Killed(
        "research_agent.py",
        ("step.after_body:kill@5", "effect.after_body:kill@3"),
        "published: There are two tides a day, and the moon makes them.",
        one_report,
    ),
    Killed(
        "email_campaign.py",
        ("effect.after_body:kill@20", "effect.after_intent:kill@9"),
        "59 of 60 mails sent",
        a_mail_for_each_person,
    ),
    Killed(
        "refund.py",
        ("question.after_commit:kill", "effect.after_body:kill@1", "undo.before:kill"),
        "order-1: 40 paid back, approved by eva; order-2: taken back, order-2 is on its way",
        one_payment_that_stays,
    ),
    Killed(
        "digest.py",
        ("schedule.before_start:kill@3", "effect.after_body:kill@3"),
        "7 digests, 5 of them with 3 things",
        a_digest_for_each_morning,
    ),
    Killed(
        "webhook_triage.py",
        ("event.before_delivery:kill@2", "land.before_commit:kill"),
        "msg-1 bug, msg-2 spam, msg-3 question",
        an_outcome_for_each_delivery,
    ),
    Killed(
        "chat_with_interrupts.py",
        ("send.after_commit:kill", "land.after_commit:kill", "interrupt.before:kill"),
        "2 answers",
        an_answer_for_each_message,
    ),
    Killed(
        "map_documents.py",
        ("land.before_commit:kill@200", "land.after_commit:kill@200"),
        "{'letter': 666, 'invoice': 333, 'unreadable': 1}",
        a_row_for_each_document,
    ),
]


@pytest.mark.parametrize("killed", KILLED, ids=lambda killed: killed.example)
def test_an_example_that_is_killed_goes_on_and_has_done_everything_once(killed: Killed, tmp_path: Path) -> None:
    (path,) = [path for path in EXAMPLES if path.name == killed.example]

    def run(fault: str = "") -> subprocess.CompletedProcess[str]:
        return Script(str(path), env=environment({"HOLDFAST_FAULT": fault}), cwd=tmp_path).ended(600)

    for fault in killed.faults:
        process = run(fault)
        assert process.returncode == -9, f"{fault} was not passed: {process}"
    process = run()
    assert process.returncode == 0, process
    assert process.stdout.splitlines()[-1] == killed.said
    killed.check(tmp_path)
