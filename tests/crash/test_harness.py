"""The harness is only worth something if it notices: agents and histories that are wrong on purpose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.model import Kind, Mail, Record, RunId, RunRow, Status, Wait, WaitKind, WorkerId, reasons
from holdfast.testing import Ledger, LedgerLine, assert_survives, check_history
from holdfast.testing.invariants import _violations, violations_of
from holdfast.testing.reading import read_run
from tests.crash import agents, broken


def test_mail_that_is_committed_between_two_looks_is_no_broken_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a database does it for a process that was killed behind its COMMIT."""

    async def go() -> list[str]:
        async with hf.connect(tmp_path / "store.db") as app:
            run = await app.start(agents.asks(1), id="r", delay=1000)
            store, sent = app._store, list[bool]()
            mail = store.mail

            async def late(run_id: RunId, *, after: int, limit: int | None = None) -> list[Mail]:
                if not sent:
                    sent.append(await run.send("late", 1))
                return await mail(run_id, after=after, limit=limit)

            monkeypatch.setattr(store, "mail", late)
            return [each async for each in _violations(store, [], [])]

    assert asyncio.run(go()) == []


def failure(call: hf.Call[object], *points: str) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_survives(call, points=points)
    return str(caught.value)


def test_a_verification_that_lies_is_reported_with_everything_needed_to_see_it_again() -> None:
    said = failure(broken.liar(1), "effect.after_body")
    assert "denied#1: attempt 1 happened, and verify said that it did not" in said
    assert "killed at effect.after_body@1 (the effect happened, its outcome is not recorded)" in said
    assert "HOLDFAST_FAULT=effect.after_body:kill@1" in said
    assert "begin survivor denied#1 attempt 1" in said
    assert "in doubt (crash)" in said


def test_an_end_that_differs_is_reported() -> None:
    assert "without a crash as done with" in failure(broken.fickle(1), "step.after_body")


def test_an_agent_that_never_ends_the_same_way_can_say_so() -> None:
    survival = assert_survives(broken.fickle(1), points=["step.after_body"], same_end=False)
    assert survival.kills >= 1


def test_an_effect_hidden_in_a_step_is_reported() -> None:
    with pytest.raises(AssertionError, match="began 1 times under 0 intents"):
        assert_survives(broken.smuggler(1))


def test_a_process_that_does_not_end_well_is_reported() -> None:
    assert "ended with code" in failure(broken.stuck(1), "effect.before_intent")


def test_a_run_in_doubt_is_accepted_as_such_unless_somebody_drives() -> None:
    survival = assert_survives(agents.asks(1), points=["effect.after_body"])
    assert {life.status for life in survival.lives} == {Status.in_doubt}


def test_what_cannot_be_killed_is_refused() -> None:
    with pytest.raises(UsageError, match="no crash point"):
        assert_survives(agents.asks(1), points=["effect.nowhere"])
    with pytest.raises(UsageError, match="takes a call"):
        assert_survives(agents.asks)  # type: ignore[arg-type]


# histories

History = tuple[RunRow, list[Record]]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("history")
    url = str(folder / "store.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_TEST_FOLDER", str(folder))
        patch.setenv("HOLDFAST_LEDGER", str(folder / "ledger.jsonl"))
        hf.run(agents.sequence(2), id="r", url=url)
    row, records = read_run(url, "r")
    assert list(violations_of(row, records)) == []
    return row, records


def find(records: list[Record], kind: Kind, key: str) -> int:
    return next(i for i, r in enumerate(records) if r.kind == kind and r.key == key)


def again(records: list[Record], index: int, **changes: object) -> list[Record]:
    """One more record before the end, like the one at `index`."""
    copy = records[index]._replace(**changes)  # type: ignore[arg-type]
    moved = [*records[:-1], copy, records[-1]]
    return [r._replace(seq=seq) for seq, r in enumerate(moved, start=1)]


def with_head(row: RunRow, records: list[Record]) -> History:
    return replace(row, head_seq=len(records)), records


DOUBT = reasons.Waiting((Wait(WaitKind.doubt, "post#1", None, {}),), None, 0, False)
WAIT = reasons.Waiting((Wait(WaitKind.signal, "look#1", None, {"name": "go"}),), None, 0, False)

WRONG: dict[str, tuple[Callable[[RunRow, list[Record]], History], str]] = {
    "a record is missing": (lambda w, r: (w, r[:4] + r[5:]), "gaps"),
    "a fenced worker wrote": (
        lambda w, r: (replace(w, epoch=2), [*r[:2], r[2]._replace(epoch=2), *r[3:]]),
        "a fenced worker wrote",
    ),
    "an epoch without a claim": (
        lambda w, r: (replace(w, epoch=2), [*r[:-1], r[-1]._replace(epoch=2)]),
        "not with a claim",
    ),
    "the row fell behind": (lambda w, r: (replace(w, epoch=0), r), "its row is at epoch 0"),
    "two outcomes": (lambda w, r: with_head(w, again(r, find(r, Kind.done, "look#1"))), "after its outcome"),
    "begun after its end": (
        lambda w, r: with_head(w, again(r, find(r, Kind.done, "look#1"), kind=Kind.started)),
        "look#1: started",
    ),
    "an effect again": (lambda w, r: with_head(w, again(r, find(r, Kind.intent, "post#1"))), "post#1: intent"),
    "an intent that nobody settled": (
        lambda w, r: with_head(w, again(again(r, find(r, Kind.intent, "post#1"), key="x#1"), -2)),
        "was never settled",
    ),
    "settled by nobody": (
        lambda w, r: with_head(w, again(r, find(r, Kind.intent, "post#1"), key="x#1", kind=Kind.settled, payload="{}")),
        "without saying by whom",
    ),
    "on after the end": (lambda w, r: with_head(w, [*r, r[2]._replace(seq=len(r) + 1)]), "after it was done"),
    "no end": (lambda w, r: with_head(w, r[:-1]), "has no end"),
    "another end": (lambda w, r: (replace(w, status=Status.failed), r), "its row says failed"),
    "owned for ever": (lambda w, r: (replace(w, owner=WorkerId("w")), r), "still owned"),
    "running without an owner": (
        lambda w, r: with_head(replace(w, status=Status.running), r[:-1]),
        "nobody owns it",
    ),
    "queued with an owner": (
        lambda w, r: with_head(replace(w, status=Status.queued, owner=WorkerId("w")), r[:-1]),
        "queued and owned",
    ),
    "waiting for nothing": (lambda w, r: with_head(replace(w, status=Status.waiting), r[:-1]), "does not say why"),
    "in doubt about nothing": (
        lambda w, r: with_head(replace(w, status=Status.in_doubt, reason=reasons.of({"why": "in doubt"})), r[:-1]),
        "about nothing",
    ),
    "in doubt about what is known": (
        lambda w, r: with_head(replace(w, status=Status.in_doubt, reason=DOUBT), r[:-1]),
        "whose last record is done",
    ),
    "waiting for what has ended": (
        lambda w, r: with_head(replace(w, status=Status.waiting, reason=WAIT), r[:-1]),
        "look#1, which has ended",
    ),
    "claimable too late": (
        lambda w, r: with_head(replace(w, status=Status.waiting, reason=WAIT, wake_at=7), r[:-1]),
        "would be claimed at 7",
    ),
    "queued for nobody": (lambda w, r: with_head(replace(w, status=Status.queued), r[:-1]), "ever claim it"),
    "decided twice": (
        lambda w, r: with_head(
            w,
            again(
                again(r, find(r, Kind.done, "look#1"), key="x#1", kind=Kind.decided, payload="{}"),
                -2,
                kind=Kind.decided,
            ),
        ),
        "x#1: decided at",
    ),
    "cancelled and done": (
        lambda w, r: with_head(w, again(r, find(r, Kind.done, "look#1"), key="", kind=Kind.noted, name="cancel")),
        "and was cancelled at seq",
    ),
    "a person's act with more": (
        lambda w, r: (
            replace(w, epoch=2, head_seq=len(r) + 1),
            [
                *(x._replace(seq=n) for n, x in enumerate(r[:-1], start=1)),
                r[-1]._replace(epoch=2, key="", kind=Kind.noted, name="paused", payload="{}"),
                r[-1]._replace(epoch=2, seq=r[-1].seq + 1),
            ],
        ),
        "not with a claim",
    ),
    "mail that was never accepted": (lambda w, r: (replace(w, mail=2), r), "its counter is 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_history_that_breaks_a_promise_is_noticed(name: str, history: History) -> None:
    change, expected = WRONG[name]
    found = list(violations_of(*change(*history)))
    assert any(expected in each for each in found), found


def line(what: str, key: str, at: int, *, attempt: int = 1, kind: str = "effect") -> LedgerLine:
    return LedgerLine(what, kind, "r", key, attempt, "", 1, at, None)  # type: ignore[arg-type]


def test_a_body_that_began_after_its_outcome_is_noticed(history: History) -> None:
    row, records = history
    at = records[find(records, Kind.done, "look#1")].at
    found = list(violations_of(row, records, lines=[line("begin", "look#1", at + 1, kind="step")]))
    assert len(found) == 1
    assert "after its outcome" in found[0]


def test_a_step_that_a_worker_begins_which_was_taken_over_from_is_no_broken_promise(history: History) -> None:
    row, records = history
    place = find(records, Kind.done, "look#1")
    outcome, first = records[place], records[place].epoch
    claim = records[0]._replace(kind=Kind.claimed, epoch=first - 1, payload='{"pid": 1}')
    late = [line("begin", "look#1", outcome.at + 1, kind="step")]
    assert not [each for each in violations_of(row, [*records, claim], lines=late) if "body began" in each]
    same = claim._replace(epoch=first)
    assert [each for each in violations_of(row, [*records, same], lines=late) if "body began" in each]
    effect = [line("begin", "post#1", records[find(records, Kind.done, "post#1")].at + 1)]
    assert [each for each in violations_of(row, [*records, claim], lines=effect) if "body began" in each]


def test_a_body_without_an_intent_of_its_own_is_noticed(history: History) -> None:
    row, records = history
    lines = [line("begin", "post#1", 0), line("begin", "post#1", 1)]
    assert "began 2 times under 1 intents" in " ".join(violations_of(row, records, lines=lines))


def test_what_was_acknowledged_and_is_not_there_is_noticed(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")

    @hf.agent
    async def nothing() -> None:
        pass

    hf.run(nothing(), id="r", url=url)
    acks = [("r", ""), ("r", "finished"), ("r", "look#1"), ("q", "")]
    assert check_history(url, acks=acks) == [
        "run r: look#1 was acknowledged, and its outcome is not in the journal",
        "run q: its start was acknowledged, and it is not in the store",
    ]


# the ledger


def test_a_ledger_tells_what_happened_and_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_FOLDER", str(tmp_path))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    monkeypatch.setenv("HOLDFAST_LEDGER", str(ledger.path))
    assert ledger.lines() == []
    hf.run(agents.sequence(1), id="r", url=str(tmp_path / "store.db"))
    assert ledger.happened("post#1") == 1
    assert ledger.happened("post#1", run="another") == 0
    assert ledger.happened("post#2") == 0
    assert ledger.repeated() == []
    told = ledger.lines()
    with ledger.path.open("a") as file:
        file.write('{"what": "be')  # somebody is writing right now
    assert ledger.lines() == told
    lines = ledger.path.read_text().splitlines()[:-1]
    ledger.path.write_text("\n".join([*lines, *lines]) + "\n")
    assert ledger.repeated() == [("r", "post#1", 2)]
    assert {"run", "key", "attempt", "idempotency_key", "pid", "at"} <= json.loads(lines[0]).keys()


def test_a_ledger_without_a_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_LEDGER", raising=False)
    with pytest.raises(UsageError, match="HOLDFAST_LEDGER"):
        Ledger().lines()
