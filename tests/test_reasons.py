"""Why a run stands as it does: what is stored of it, to the byte, and what becomes of what nobody knows."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.journal.chain import seal_row
from holdfast.journal.integrity import check_row
from holdfast.model import MailKind, NoteKind, Proof, RunRow, Status, Wait, WaitKind, following, reasons
from holdfast.model.diagnoses import Backwards, Cause, Change, ChangedOutside, Head, Left, Mismatch, OverBudget, Trouble
from holdfast.model.reasons import (
    Arriving,
    Blocked,
    Cleanup,
    Corrupt,
    Frozen,
    HandedOver,
    Moved,
    Moving,
    Other,
    Paused,
    Pruned,
    Reason,
    Stood,
    Tried,
    Waiting,
    Was,
)
from holdfast.model.statuses import TRANSITIONS
from holdfast.store.rows import read_run, run_parameters
from holdfast.testing.samples import new_run

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"

SIGNAL = Wait(WaitKind.signal, "hf:receive.go#1", 7, {"name": "go"})
WAITING = Waiting((SIGNAL,), 7, 2, False)
LEFT = Left("pay#1", "pay", 4, '{"n":1}', True)
MISMATCH = Mismatch("post", "a.py:3", (LEFT,), ("post  a.py:3",))

#: Each as it has always been stored.
STORED: list[tuple[Reason, str]] = [
    (
        WAITING,
        '{"why":"signal","waits":[{"kind":"signal","key":"hf:receive.go#1","due":7,"name":"go"}],'
        '"due":7,"mail":2,"cleanup":false}',
    ),
    (
        Waiting((Wait(WaitKind.timer, "hf:sleep#1", 9, {"name": "sleep"}),), 9, 0, True),
        '{"why":"timer","waits":[{"kind":"timer","key":"hf:sleep#1","due":9,"name":"sleep"}],'
        '"due":9,"mail":0,"cleanup":true}',
    ),
    (
        Waiting(
            (Wait(WaitKind.question, "hf:ask#1", None, {"name": "ask", "question": "q_1", "prompt": "So?"}), SIGNAL),
            None,
            0,
            False,
        ),
        '{"why":"question","waits":[{"kind":"question","key":"hf:ask#1","due":null,"name":"ask","question":"q_1",'
        '"prompt":"So?"},{"kind":"signal","key":"hf:receive.go#1","due":7,"name":"go"}],'
        '"due":null,"mail":0,"cleanup":false}',
    ),
    (
        Waiting((Wait(WaitKind.child, "child#1", None, {"name": "child", "child": "r.c"}),), None, 0, False),
        '{"why":"child","waits":[{"kind":"child","key":"child#1","due":null,"name":"child","child":"r.c"}],'
        '"due":null,"mail":0,"cleanup":false}',
    ),
    (
        Waiting((Wait(WaitKind.doubt, "pay#1", None, {"cause": "crash"}),), None, 0, False),
        '{"why":"in doubt","waits":[{"kind":"doubt","key":"pay#1","due":null,"cause":"crash"}],'
        '"due":null,"mail":0,"cleanup":false}',
    ),
    (HandedOver(cleanup=False), '{"why":"handed over","cleanup":false}'),
    (HandedOver(detail="StoreError: away"), '{"why":"handed over","detail":"StoreError: away"}'),
    (Cleanup(), '{"cleanup":true}'),
    # Paused: at its start; by its owner in the middle of something, and while it waited; by a person.
    (Paused(Status.queued, "start"), '{"why":"paused","was":"queued","by":"start","note":""}'),
    (
        Paused(Status.queued, "eva", "no", mail=3, cleanup=True),
        '{"why":"paused","was":"queued","mail":3,"cleanup":true,"by":"eva","note":"no"}',
    ),
    (Paused(Status.queued, mail=0, cleanup=False), '{"why":"paused","was":"queued","mail":0,"cleanup":false}'),
    (
        Paused(Status.waiting, "eva", "", Stood(WAITING, 7)),
        '{"why":"paused","waits":[{"kind":"signal","key":"hf:receive.go#1","due":7,"name":"go"}],'
        '"due":7,"mail":2,"cleanup":false,"was":"waiting","wake_at":7,"by":"eva","note":""}',
    ),
    (
        Paused(Status.queued, "eva", "", Stood(None, 5), mail=0),
        '{"why":"paused","was":"queued","wake_at":5,"by":"eva","note":"","mail":0}',
    ),
    (
        Paused(Status.queued, "eva", "", Stood(None, None), mail=0, cleanup=True),
        '{"why":"paused","was":"queued","wake_at":null,"by":"eva","note":"","cleanup":true,"mail":0}',
    ),
    (
        Paused(Status.queued, "eva", "", Stood(HandedOver(cleanup=True), 5), mail=0),
        '{"why":"paused","cleanup":true,"was":"queued","wake_at":5,"by":"eva","note":"","mail":0}',
    ),
    (
        Paused(Status.queued, "eva", "", Stood(Cleanup(), 5), mail=0),
        '{"cleanup":true,"why":"paused","was":"queued","wake_at":5,"by":"eva","note":"","mail":0}',
    ),
    (
        Blocked(MISMATCH, tried=Tried("a.py", 0)),
        '{"why":"replay mismatch","asked":"post","where":"a.py:3","recorded":[{"key":"pay#1","name":"pay","seq":4,'
        '"args":"{\\"n\\":1}","open":true}],"attempted":["post  a.py:3"],"source":"a.py","executed":0}',
    ),
    (
        Blocked(Mismatch("post", "", (), (), "It was cancelled."), paused=True, tried=Tried(None, 2)),
        '{"why":"replay mismatch","asked":"post","where":"","recorded":[],"attempted":[],'
        '"detail":"It was cancelled.","paused":true,"source":null,"executed":2}',
    ),
    (
        Blocked(Backwards("Lost.", "Look.", ("pay#1",), Head(9, "ab", 2), Head(4, "cd", 1)), paused=True),
        '{"why":"history went backwards","detail":"Lost.","advice":"Look.","effects":["pay#1"],'
        '"here":{"seq":9,"hash":"ab","epoch":2},"there":{"seq":4,"hash":"cd","epoch":1},"paused":true}',
    ),
    (
        Blocked(Trouble(Cause.result, "pay#1", 4, "no int"), tried=Tried("a.py", 0)),
        '{"why":"result does not fit","asked":"pay#1","seq":4,"detail":"no int","source":"a.py","executed":0}',
    ),
    *(
        (Blocked(Trouble(cause, "x", detail="…")), f'{{"why":"{word}","asked":"x","detail":"\\u2026"}}')
        for cause, word in (
            (Cause.input, "input does not fit"),
            (Cause.race, "race changed"),
            (Cause.sealed, "call cannot go on"),
            (Cause.state, "state does not fit"),
            (Cause.prologue, "prologue is closed"),
            (Cause.answer, "answer missing"),
        )
    ),
    *(
        (Blocked(Trouble(cause, detail="d")), f'{{"why":"{word}","detail":"d"}}')
        for cause, word in (
            (Cause.crash_loop, "crash loop"),
            (Cause.open_effects, "effects left open"),
            (Cause.mail, "mail unreadable"),
            (Cause.thread, "thread"),
            (Cause.internal, "internal error"),
        )
    ),
    (
        Blocked(OverBudget("order-7", "cost", 5.0, 5.25), tried=Tried("/srv/agents.py", 12)),
        '{"why":"budget","owner":"order-7","what":"cost","limit":5.0,"used":5.25,"source":"/srv/agents.py",'
        '"executed":12}',
    ),
    (
        Blocked(
            ChangedOutside((Change("repo", "main at 1a2b", "main at 3c4d"), Change("api", "1", None, "no answer")))
        ),
        '{"why":"changed outside","changes":[{"name":"repo","was":"main at 1a2b","now":"main at 3c4d"},'
        '{"name":"api","was":"1","now":null,"failure":"no answer"}]}',
    ),
    (Blocked(Trouble(Cause.lost), tried=Tried(None, 0)), '{"why":"lost","source":null,"executed":0}'),
    (Blocked(Trouble(Cause.cancelled), tried=Tried(None, 0)), '{"why":"cancelled","source":null,"executed":0}'),
    (
        Moving("sqlite:///b.db", 5, Was(Status.waiting, WAITING, 7, 3), 2),
        '{"why":"moving","to":"sqlite:///b.db","at":5,"was":{"status":"waiting","reason":{"why":"signal","waits":'
        '[{"kind":"signal","key":"hf:receive.go#1","due":7,"name":"go"}],"due":7,"mail":2,"cleanup":false},'
        '"wake_at":7,"updated_at":3},"mail":2}',
    ),
    (
        Arriving("sqlite:///a.db", 6, Was(Status.queued, None, 7, 3)),
        '{"why":"arriving","from":"sqlite:///a.db","at":6,'
        '"was":{"status":"queued","reason":null,"wake_at":7,"updated_at":3}}',
    ),
    (
        Frozen("sqlite:///a.db", 6, Was(Status.queued, None, 7, 3)),
        '{"why":"frozen","from":"sqlite:///a.db","at":6,'
        '"was":{"status":"queued","reason":null,"wake_at":7,"updated_at":3}}',
    ),
    (Moved("sqlite:///b.db", 8), '{"why":"moved","to":"sqlite:///b.db","at":8}'),
    (Pruned(9), '{"why":"pruned","at":9}'),
    (Corrupt("record 3 was altered"), '{"why":"corrupt","detail":"record 3 was altered"}'),
]

#: What no version of ours wrote, or a later one.
STRANGE = [
    "{}",
    '{"why":"a new word","detail":"told","waits":[{"kind":"moon","key":"x#1"}]}',
    '{"why":["because",1]}',
    '{"why":"signal","waits":[{"kind":"moon","key":"x#1","due":null}, 5],"due":"late"}',
    '{"why":"timer","waits":7,"more":{"a":[1]}}',
    '{"why":"paused","was":"dreaming","by":3}',
    '{"why":"paused","was":["waiting"],"waits":null}',
    '{"why":"replay mismatch","recorded":[3,{"key":"pay#1"}],"attempted":4}',
    '{"why":"history went backwards","here":3,"effects":"all"}',
    '{"why":"moved"}',
    '{"why":"pruned","at":"noon"}',
    '{"why":"moving","was":{"status":"dreaming","reason":{"why":"moving","was":{"reason":{"was":{}}}}}}',
    '{"why":"arriving","was":5}',
]


@pytest.mark.parametrize(("reason", "text"), STORED, ids=lambda each: each[:40] if isinstance(each, str) else "")
def test_a_reason_is_stored_as_it_always_was(reason: Reason, text: str) -> None:
    assert reasons.text(reason) == text
    read = reasons.read(text)
    assert type(read) is type(reason)
    assert reasons.text(read) == text
    assert reasons.why(read) == reasons.why(reason)
    for ask in (reasons.waits_of, reasons.cleans_up, reasons.seen_mail, reasons.due_of, reasons.recorded_of):
        assert ask(read) == ask(reason), ask


def test_what_is_stored_has_an_example_of_each_reason_and_each_cause() -> None:
    assert {type(reason) for reason, _ in STORED} == {*Reason.__args__} - {Other}
    causes = {reason.found.cause for reason, _ in STORED if isinstance(reason, Blocked)}
    assert causes == {*Cause} - {Cause.unknown}


@pytest.mark.parametrize("text", STRANGE)
def test_a_reason_that_nobody_knows_is_read_and_written_back_as_it_was(text: str) -> None:
    reason = reasons.read(text)
    assert json.loads(reasons.text(reason)) == json.loads(text)
    reasons.waits_of(reason), reasons.seen_mail(reason), reasons.recorded_of(reason), reasons.paused_by(reason)
    assert reasons.blocked(reason).found.cause in Cause
    sealed = seal_row(_row(reason))
    check_row(read_run(run_parameters(sealed, None)))
    assert reasons.went_on(reason, 0)[0] in Status


def test_what_a_later_version_says_of_a_known_reason_does_not_hide_it() -> None:
    moved = reasons.read('{"why":"moved","to":"b","at":5,"by":"eva"}')
    assert moved == Moved("b", 5)
    waiting = reasons.read('{"waits":[{"kind":"moon","key":"a#1"},{"kind":"signal","key":"b#1","name":"go"}]}')
    assert [wait.kind for wait in reasons.waits_of(waiting)] == [WaitKind.unknown, WaitKind.signal]


@pytest.mark.parametrize("text", ["5", "null", "[]", "{", '"why"'])
def test_what_is_no_reason_at_all_is_damaged(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        reasons.read(text)


def test_a_paused_run_goes_back_to_what_it_waited_for() -> None:
    paused = reasons.read(reasons.text(Paused(Status.waiting, "eva", "", Stood(WAITING, 7))))
    was, reason, wake_at = reasons.went_on(paused, 2)
    assert (was, wake_at) == (Status.waiting, 7)
    assert reason is not None
    assert reasons.text(reason) == reasons.text(WAITING)
    assert reasons.went_on(paused, 3) == (Status.queued, None, None), "there is mail that it has not seen"
    cut_off = Paused(Status.queued, "eva", "", Stood(None, None), mail=0, cleanup=True)
    assert reasons.went_on(cut_off, 0) == (Status.queued, Cleanup(), None)


def test_a_status_changes_as_the_table_says_or_not_at_all() -> None:
    for status in Status:
        for to in Status:
            if to is status or to in TRANSITIONS[status]:
                assert following(status, to) is to
            else:
                with pytest.raises(AssertionError, match=f"{status} does not become {to}"):
                    following(status, to)


# nobody else knows how it is stored


#: A start that was refused says `why` as well, and so does a line of the log; these are no reasons of runs.
_OTHER_WORDS = frozenset(
    {"automation/triggers/refused.py", "cli/commands/triggers.py", "cli/worker_events.py", "server/reads.py"}
)
_PLACES = frozenset({"model/reasons.py", "model/notes.py"})
_KINDS = frozenset({*WaitKind, *MailKind, *NoteKind, *Proof})


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def test_only_one_module_knows_how_a_reason_is_stored() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in _trees()
        if name not in _OTHER_WORDS | _PLACES
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value == "why"
    ]
    assert found == []


def test_kinds_are_compared_as_what_they_are() -> None:
    """`mail.kind == "pause"` would go on to be true, and go on to be wrong once a word changes."""
    found = []
    for name, tree in _trees():
        for node in ast.walk(tree):
            match node:
                case ast.Compare(left=ast.Attribute(attr="kind" | "name" | "proof") as left, comparators=[against]):
                    of = ast.unparse(left)
                    told = [each.value for each in ast.walk(against) if isinstance(each, ast.Constant)]
                case ast.Match(subject=ast.Attribute(attr="kind" | "name" | "proof") as left, cases=cases):
                    of = ast.unparse(left)
                    told = [
                        each.value.value
                        for case in cases
                        for each in ast.walk(case.pattern)
                        if isinstance(each, ast.MatchValue) and isinstance(each.value, ast.Constant)
                    ]
                case _:
                    continue
            if not of.startswith(_TOLD_OTHERWISE) and _KINDS & {each for each in told if isinstance(each, str)}:
                found.append(f"{name}:{node.lineno} {of}")
    assert found == []


#: Items of a timeline have kinds of their own.
_TOLD_OTHERWISE = ("item.", "i.", "call.")


def _row(reason: Reason) -> RunRow:
    return new_run(reason=reason).row
