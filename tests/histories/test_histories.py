"""Histories that an engine with defects once wrote. Whoever checks histories must see what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.model import Record
from holdfast.testing.invariants_effects import effect_violations

HERE = Path(__file__).parent
#: seq, epoch, key, kind, name, attempt, digest of the arguments, payload; per run
WRONG = {
    "cancelled_from_within": {"x": "charge#1: the run ended at seq 5, and what became of it is not known"},
    "verify_cancelled_from_within": {"x": "ver#1: the run ended at seq 4, and what became of it is not known"},
    "verdict_on_what_is_executed": {"p": "charge#1: a person settled it at seq 10, and nobody had been asked"},
    "other_arguments": {"r": "pay#1: begun at seq 3, tried again at seq 7 with other arguments"},
    "saga_cut_off": {
        "cancelled": "book.undo: 3 happened and 1 were taken back",
        "with_timeout": "book.undo: 3 happened and 2 were taken back",
    },
}


def read(name: str) -> dict[str, list[Record]]:
    return {
        run: [
            Record(seq, epoch, 1, key, kind, what, attempt, 0, 0, 0, digest, None, json.dumps(payload), b"")
            for seq, epoch, key, kind, what, attempt, digest, payload in records
        ]
        for run, records in json.loads((HERE / f"{name}.json").read_text()).items()
    }


@pytest.mark.parametrize("name", WRONG)
def test_what_an_engine_with_defects_wrote_is_found(name: str) -> None:
    found = {run: list(effect_violations(records)) for run, records in read(name).items()}
    assert found == {run: [sentence] for run, sentence in WRONG[name].items()}


def test_every_history_here_is_looked_at() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == set(WRONG)


def history(*lines: tuple[str, str, str, object]) -> list[Record]:
    """Records of one epoch: key, kind, name, payload."""
    opening = [("", "created", "trip", None), ("", "claimed", "w_1", None)]
    return [
        Record(seq, 1, 1, key, kind, name, 1, 0, 0, 0, "d", None, json.dumps(payload), b"")
        for seq, (key, kind, name, payload) in enumerate([*opening, *lines], 1)
    ]


BOOKED = [
    ("hotel#1", "intent", "hotel", {"idempotency_key": "k1", "saga": "hf.saga#1"}),
    ("hotel#1", "done", "hotel", "h"),
    ("car#1", "intent", "car", {"idempotency_key": "k2", "saga": "hf.saga#1"}),
    ("car#1", "done", "car", "c"),
]
TO_UNDO = ("hf.saga#1", "started", "hf.saga", {"undo": ["hotel#1", "car#1"]})
UNDONE = ("hf.saga#1", "done", "hf.saga", {"undo": ["hotel#1", "car#1"], "failed": 0})
FAILED = ("", "finished", "failed", None)


def undo(name: str, undoes: str) -> list[tuple[str, str, str, object]]:
    key = f"{name}.undo#1"
    return [
        (key, "intent", f"{name}.undo", {"idempotency_key": f"u{undoes}", "undoes": undoes}),
        (key, "done", f"{name}.undo", None),
    ]


def test_a_saga_that_took_everything_back_is_right() -> None:
    records = history(*BOOKED, TO_UNDO, *undo("car", "k2"), *undo("hotel", "k1"), UNDONE, FAILED)
    assert list(effect_violations(records)) == []


def test_a_saga_that_forgot_something_is_found() -> None:
    records = history(*BOOKED, TO_UNDO, *undo("car", "k2"), UNDONE, FAILED)
    assert list(effect_violations(records)) == [
        "hotel#1: it happened in hf.saga#1, which was to be taken back, and it was not"
    ]


def test_a_saga_that_was_cut_off_by_the_end_of_the_run_is_found() -> None:
    records = history(*BOOKED, TO_UNDO, *undo("car", "k2"), FAILED)
    assert list(effect_violations(records)) == [
        "hotel#1: it happened in hf.saga#1, which was to be taken back, and it was not"
    ]


def test_a_saga_without_an_end_in_a_run_that_has_one_is_found() -> None:
    records = history(*BOOKED, FAILED)
    assert [each for each in effect_violations(records) if "never ended" in each] == [
        "hotel#1: it happened in hf.saga#1, which never ended",
        "car#1: it happened in hf.saga#1, which never ended",
    ]


def test_a_wrong_order_of_undoing_is_found() -> None:
    records = history(*BOOKED, TO_UNDO, *undo("hotel", "k1"), *undo("car", "k2"), UNDONE, FAILED)
    assert list(effect_violations(records)) == ["hf.saga#1: what it did was not taken back in reverse order"]


def test_what_an_inner_saga_kept_belongs_to_the_outer_one() -> None:
    inner = ("hf.saga#1", "done", "hf.saga", {"kept": ["hotel#1", "car#1"], "outer": "hf.saga#2"})
    outer = ("hf.saga#2", "done", "hf.saga", {"undo": ["hotel#1"], "failed": 0})
    assert list(effect_violations(history(*BOOKED, inner, outer, FAILED))) == [
        "hotel#1: it happened in hf.saga#2, which was to be taken back, and it was not",
        "car#1: it happened in hf.saga#2, which was taken back without it",
    ]


def test_a_call_that_ended_in_doubt_and_was_repeated_is_found() -> None:
    intent = ("pay#1", "intent", "pay", {"idempotency_key": "k"})
    ruled = ("pay#1", "settled", "pay", {"verdict": "fail", "by": "on_doubt", "evidence": {"cause": "crash"}})
    ended = ("pay#1", "failed", "pay", None)
    reopened = ("", "reopened", "eva", {"superseded": [5, 6]})
    again = history(intent, ruled, ended, FAILED, reopened, intent, ("pay#1", "done", "pay", 1))
    assert list(effect_violations(again)) == [
        "pay#1: it ended in doubt at seq 4, and was done again at seq 8 unsettled"
    ]
    verdict = ("pay#1", "settled", "pay", {"verdict": "not_landed", "by": "verify", "evidence": {"cause": "crash"}})
    settled = history(intent, ruled, ended, FAILED, reopened, verdict, intent, ("pay#1", "done", "pay", 1))
    assert list(effect_violations(settled)) == []


def test_other_arguments_that_are_not_told_are_found() -> None:
    intent = ("pay#1", "intent", "pay", {"idempotency_key": "k"})
    denied = ("pay#1", "settled", "pay", {"verdict": "not_landed", "by": "person", "evidence": {"cause": "crash"}})
    asked = ("pay#1", "noted", "held", None)
    records = history(intent, asked, denied, intent, ("pay#1", "done", "pay", 1))
    assert list(effect_violations(records)) == []
    records[5] = records[5]._replace(args_digest="e")
    assert list(effect_violations(records)) == ["pay#1: begun at seq 3, tried again at seq 6 with other arguments"]
    records[5] = records[5]._replace(args='{"who":"bob"}')
    assert list(effect_violations(records)) == []


def test_a_call_that_ended_as_taken_back_and_was_not_is_found() -> None:
    intent = ("pay#1", "intent", "pay", {"idempotency_key": "k"})
    ruled = ("pay#1", "settled", "pay", {"verdict": "undo", "by": "on_doubt", "evidence": {"cause": "crash"}})
    undo = ("pay#1.undo", "intent", "pay.undo", {"idempotency_key": "u", "undoes": "k"})
    undone = ("pay#1.undo", "done", "pay.undo", None)
    ended = ("pay#1", "failed", "pay", None)
    assert list(effect_violations(history(intent, ruled, undo, undone, ended, FAILED))) == []
    wrong = "it ended at seq {} as taken back, and was not"
    failed = ("pay#1.undo", "failed", "pay.undo", None)
    assert list(effect_violations(history(intent, ruled, undo, failed, ended, FAILED))) == [f"pay#1: {wrong.format(7)}"]
    again = [("", "reopened", "eva", {"superseded": [7, 8]}), intent, ruled, ended]
    records = history(intent, ruled, undo, undone, ended, FAILED, *again)
    assert list(effect_violations(records)) == [f"pay#1: {wrong.format(12)}"]


def test_whoever_ends_a_run_by_hand_says_what_they_leave_in_doubt() -> None:
    begun = history(("pay#1", "intent", "pay", {"idempotency_key": "k"}))

    def by_hand(*lines: tuple[str, str, object]) -> list[Record]:
        ended = [
            Record(seq, 2, 1, "", kind, name, 1, 0, 0, 0, "", None, json.dumps(payload), b"")
            for seq, (kind, name, payload) in enumerate(lines, len(begun) + 1)
        ]
        return [*begun, *ended]

    cancel, end = ("noted", "cancel", {"by": "eva"}), ("finished", "cancelled", None)
    assert list(effect_violations(by_hand(cancel, end))) == [
        "pay#1: the run ended at seq 5, and what became of it is not known"
    ]
    assert list(effect_violations(by_hand(cancel, ("noted", "left in doubt", {"effects": ["pay#1"]}), end))) == []
