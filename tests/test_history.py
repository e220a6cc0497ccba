"""What the records of a run tell: no store, except where the store itself is what is looked at."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.errors import RunNotFound
from holdfast.history.doubts import in_doubt_of
from holdfast.history.info import info_of
from holdfast.history.overview import record_facts
from holdfast.history.receipts import receipts_of
from holdfast.history.timeline import timeline_of
from holdfast.journal.verification import Verification, verify
from holdfast.model import Kind, Record, RunId, RunRow, Status, ThreadId, WorkerId, reasons

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def row(status: Status = Status.running, **changes: Any) -> RunRow:
    values: dict[str, Any] = {
        "id": RunId("one"),
        "thread_id": ThreadId("t1"),
        "agent": "research",
        "nonce": "n",
        "parent_id": None,
        "queue": "default",
        "queue_key": "",
        "priority": 0,
        "wake_at": None,
        "created_at": START,
        "updated_at": START + SECOND,
        "status": status,
        "reason": None,
        "turn": 0,
        "epoch": 1,
        "head_seq": 1,
        "head_hash": b"",
        "input_digest": "",
        "summary": {},
        "owner": WorkerId("w_1"),
        "claims": 1,
        "mail": 0,
        "digest": "",
    }
    return RunRow(**values | changes)


class Journal:
    """Records of a made-up run, one second apart."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.epoch = 0

    def add(
        self, kind: Kind, key: str = "", name: str = "", *, payload: object = None, took: int = 0, **more: Any
    ) -> Journal:
        seq = len(self.records) + 1
        text = payload if isinstance(payload, str) else json.dumps(payload)
        fields: dict[str, Any] = {"attempt": 1, "tick": 0, "args": None, "at": START + seq * SECOND} | more
        self.records.append(
            Record(
                seq=seq,
                epoch=self.epoch,
                turn=0,
                key=key,
                kind=kind,
                name=name or key.partition("#")[0],
                took=took,
                args_digest="",
                payload=text,
                hash=b"",
                **fields,
            )
        )
        return self

    def claimed(
        self, worker: str, *, lost: str | None = None, code: str = "c1", at: int | None = None, **said: Any
    ) -> Journal:
        self.epoch += 1
        note = {"code": code, "lost": lost, "proof": "lock" if lost else "released", **said}
        more: dict[str, Any] = {} if at is None else {"at": at}
        return self.add(Kind.claimed, name=worker, payload=note, **more)

    def created(self) -> Journal:
        self.epoch = 1
        self.add(Kind.created, name="research", payload={"code": "c1c1c1c1c1", "version": None})
        self.epoch = 0
        return self.claimed("w_1")

    def usage(self, key: str) -> Journal:
        used = {"model": "m", "input_tokens": 10, "output_tokens": 5, "cost": 0.5}
        return self.add(Kind.noted, key, "usage", payload=used)


def story(journal: Journal, status: Status = Status.running, **changes: Any) -> list[tuple[str, str, str]]:
    items = timeline_of(row(status, epoch=journal.epoch, **changes), journal.records)
    return [(item.key or item.name, item.kind, item.status) for item in items]


def test_info_says_what_a_run_is_doing() -> None:
    progress = {"progress": {"done": 3, "total": 10, "note": "reading"}, "steps": 4, "cost": 0.5}
    info = info_of(row(summary=progress))
    assert (info.now, info.steps, info.cost, info.token) == ("3/10 reading", 4, 0.5, "one@t1")
    assert info.created_at.tzinfo is UTC
    assert info_of(row(summary=progress), is_lost=True).now == "cut off, recoverable"
    doubt = {"why": "in doubt", "waits": [{"kind": "doubt", "key": "pay#1", "due": None, "cause": "timeout"}]}
    assert info_of(row(Status.in_doubt, reason=reasons.of(doubt))).now == "pay#1 (timeout)"
    assert (
        info_of(row(Status.blocked, reason=reasons.of({"why": "replay mismatch", "asked": "pay"}))).now
        == "replay mismatch: pay"
    )
    assert info_of(row(Status.quarantined, reason=reasons.of({"detail": "broken at 3"}))).now == "broken at 3"


def test_a_run_that_is_over_is_not_lost() -> None:
    assert info_of(row(Status.done), is_lost=True).is_lost is False


def test_info_is_ready_for_json() -> None:
    text = json.dumps(info_of(row(Status.in_doubt, reason=reasons.of({"why": "x"})), is_lost=False).as_dict())
    assert json.loads(text)["status"] == "in_doubt"


def test_each_call_is_one_item_where_it_ended() -> None:
    journal = Journal().created().add(Kind.started, "slow#1").add(Kind.done, "quick#1", took=5 * SECOND)
    journal.add(Kind.intent, "pay#1", payload={"idempotency_key": "k"}).add(Kind.done, "pay#1").add(Kind.done, "slow#1")
    journal.add(Kind.finished, name="done")
    assert story(journal, Status.done) == [
        ("research", "started", "started"),
        ("quick#1", "step", "done"),
        ("pay#1", "effect", "done"),
        ("slow#1", "step", "done"),
        ("done", "finished", "done"),
    ]


@pytest.mark.parametrize(
    ("status", "changes", "step", "effect"),
    [
        (Status.running, {}, "running", "running"),
        (Status.running, {"epoch": 2}, "cut off", "in doubt"),
        (Status.in_doubt, {}, "cut off", "in doubt"),
        (Status.queued, {}, "cut off", "in doubt"),
    ],
)
def test_open_calls_run_or_were_cut_off(status: Status, changes: dict[str, int], step: str, effect: str) -> None:
    journal = Journal().created().add(Kind.started, "slow#1").add(Kind.intent, "pay#1", payload={})
    items = timeline_of(row(status, **changes), journal.records)
    assert [(i.name, i.status) for i in items[1:]] == [("slow", step), ("pay", effect)]


def test_open_calls_of_a_lost_run_were_cut_off() -> None:
    journal = Journal().created().add(Kind.intent, "pay#1", payload={})
    assert timeline_of(row(), journal.records, is_lost=True)[-1].status == "in doubt"


def test_an_outage_has_its_length_and_a_hand_over_is_none() -> None:
    journal = Journal().created().add(Kind.done, "a#1")
    journal.claimed("w_2", lost="w_1", at=START + 100 * SECOND, code="c2").claimed("w_3")
    outage, resumed = timeline_of(row(epoch=3), journal.records)[2:]
    assert (outage.kind, outage.took_s) == ("outage", 97.0)
    assert "w_1 lost (its lock is free), resumed by w_2, code changed" in outage.detail
    assert resumed.kind == "resumed"


def test_an_outage_begins_when_the_worker_was_last_heard_of() -> None:
    journal = Journal().created().add(Kind.done, "a#1", at=START + 10 * SECOND)
    journal.claimed("w_2", lost="w_1", at=START + 100 * SECOND, renewed=START + 95 * SECOND)
    journal.claimed("w_3", lost="w_2", at=START + 200 * SECOND, renewed=START + 20 * SECOND)
    first, second = receipts_of(row(epoch=3), journal.records)
    assert (first.down_s, second.down_s) == (5.0, 100.0)  # it wrote something after that renewal
    assert [i.took_s for i in timeline_of(row(epoch=3), journal.records) if i.kind == "outage"] == [5.0, 100.0]


def test_that_a_run_wakes_up_is_no_resume_and_saves_nothing() -> None:
    journal = Journal().created().add(Kind.done, "a#1", took=SECOND).claimed("w_1", woken=True)
    journal.add(Kind.done, "b#1", took=SECOND).claimed("w_2", woken=True, code="c2")
    journal.claimed("w_3", lost="w_2", code="c2")
    (receipt,) = receipts_of(row(epoch=4), journal.records)
    assert (receipt.worker, receipt.replayed, receipt.saved_s) == ("w_3", 2, 2.0)
    told = [(i.kind, i.status) for i in timeline_of(row(epoch=4), journal.records)[1:]]
    assert told == [("step", "done"), ("step", "done"), ("note", "code changed"), ("outage", "process lost")]


def test_attempts_settlements_usage_and_errors_are_told_with_the_call() -> None:
    error = {"type": "ValueError", "module": "builtins", "message": "no"}
    settled = {"verdict": "landed", "by": "verify", "evidence": {"cause": "crash"}, "attempt": 1, "given": None}
    journal = Journal().created().add(Kind.attempt, "a#1", payload={"error": error, "retry_at": 0, "postponed": 0})
    journal.add(Kind.done, "a#1", attempt=2).usage("a#1").add(Kind.failed, "b#1", payload=error)
    journal.add(Kind.intent, "pay#1", payload={}).add(Kind.settled, "pay#1", payload=settled).add(Kind.done, "pay#1")
    details = {i.key: i.detail for i in timeline_of(row(), journal.records)}
    assert details["a#1"] == "one attempt failed (ValueError: no), 10→5 tok $0.5"
    assert details["b#1"] == "ValueError: no"
    assert details["pay#1"] == "in doubt (crash) → it happened, says verify"


def test_verbs_of_holdfast_children_notes_and_unstored_results_have_their_kinds() -> None:
    journal = Journal().created().add(Kind.started, "hf.timeout#1", payload={"due": 1})
    journal.add(Kind.done, "hf.timeout#1", payload={"expired": True}).add(Kind.done, "hf.race#1", payload={"winner": 0})
    journal.add(Kind.child, "sub#1", payload={"run": "one.x"}).add(Kind.done, "sub#1")
    journal.add(Kind.noted, "sub#1", "unstable").add(Kind.patched, name="p1")
    journal.add(Kind.intent, "pay#1", payload={}).add(Kind.unstored, "pay#1", payload={"repr": "x", "error": "too odd"})
    journal.add(Kind.done, "big#1", payload="@abc:123456").add(Kind.cancelled, "lost#1")
    assert story(journal)[1:] == [
        ("hf.timeout#1", "timeout", "expired"),
        ("hf.race#1", "race", "done"),
        ("sub#1", "child", "done"),
        ("sub#1", "note", "unstable"),
        ("p1", "patched", "patched"),
        ("pay#1", "effect", "not stored"),
        ("big#1", "step", "done"),
        ("lost#1", "step", "cancelled"),
    ]


def test_processes_that_died_before_they_recorded_anything_are_known_by_their_epochs() -> None:
    journal = Journal().created().add(Kind.done, "a#1")
    journal.epoch += 2
    journal.claimed("w_4", lost="w_3").add(Kind.done, "b#1").claimed("w_5", lost="w_4")
    journal.epoch += 1
    journal.claimed("w_7", lost="w_6")
    journal.epoch += 1  # somebody else's doing: it was given back
    journal.claimed("w_9")
    history = row(epoch=journal.epoch), journal.records
    assert [receipt.unrecorded for receipt in receipts_of(*history)] == [2, 0, 1, 0]
    assert [item.detail for item in timeline_of(*history) if item.kind == "outage"] == [
        "w_3 lost (its lock is free), resumed by w_4, 2 processes died before recording anything",
        "w_4 lost (its lock is free), resumed by w_5",
        "w_6 lost (its lock is free), resumed by w_7, 1 process died before recording anything",
    ]


def test_a_receipt_counts_what_was_replayed_executed_and_saved() -> None:
    journal = Journal().created().add(Kind.done, "a#1", took=2 * SECOND).usage("a#1").add(Kind.done, "hf.now#1")
    journal.add(Kind.done, "b#1", took=SECOND).add(Kind.cancelled, "c#1", took=SECOND).usage("d#1")
    journal.add(Kind.intent, "pay#1", payload={}).claimed("w_2", lost="w_1", at=START + 60 * SECOND)
    journal.add(Kind.settled, "pay#1", payload={"verdict": "not_landed", "by": "verify"})
    journal.add(Kind.done, "pay#1").claimed("w_3", code="c2")
    first, second = receipts_of(row(epoch=3), journal.records)
    assert (first.worker, first.lost, first.proof, first.down_s) == ("w_2", "w_1", "lock", 51.0)
    assert (first.replayed, first.executed, first.saved_s) == (2, 1, 3.0)
    assert (first.saved_input_tokens, first.saved_output_tokens, first.saved_cost) == (10, 5, 0.5)
    assert first.in_doubt == [{"key": "pay#1", "verdict": "not_landed", "by": "verify"}]
    assert (second.replayed, second.executed, second.lost) == (3, 0, None)
    assert (first.code_changed, second.code_changed) == (False, True)


def test_what_a_thread_or_the_plan_answered_counts_whether_its_process_could_sum_up_or_not() -> None:
    """Of what is ours, a body is executed of what is said in a thread alone."""
    own = ("hf:plan#1", "hf.artifact#1", "hf.thread.recent#1", "hf.now#1", "hf.timeout#1", "hf.workspace#1")
    journal = Journal().created().add(Kind.intent, "hf.thread.append#1", payload={})
    journal.add(Kind.done, "hf.thread.append#1")
    for key in own:
        journal.add(Kind.done, key)
    journal.claimed("w_2", lost="w_1").add(Kind.intent, "hf.thread.append#2", payload={})
    for key in ("hf.thread.append#2", "hf:plan#2", "hf.artifact#2", "a#1"):
        journal.add(Kind.done, key)
    (receipt,) = receipts_of(row(epoch=2), journal.records)
    assert (receipt.replayed, receipt.executed) == (4, 2)


def test_what_a_retry_does_again_is_not_replayed() -> None:
    journal = Journal().created().add(Kind.done, "a#1").add(Kind.failed, "b#1", payload={"type": "E", "message": ""})
    journal.add(Kind.finished, name="failed", payload={"type": "E", "message": ""}).claimed("w_2")
    journal.add(Kind.reopened, name="eva", payload={"superseded": [4, 5], "note": "mended"}).add(Kind.done, "b#1")
    (receipt,) = receipts_of(row(epoch=2), journal.records)
    assert (receipt.replayed, receipt.executed) == (1, 1)
    items = timeline_of(row(epoch=2), journal.records)
    assert [(i.kind, i.status, i.detail) for i in items[2:]] == [
        ("step", "failed", "E, done again by a retry"),
        ("finished", "failed", "E"),
        ("resumed", "resumed", "by w_2"),
        ("retried", "retried", "by eva, mended"),
        ("step", "done", ""),
    ]


def test_effects_in_doubt_are_those_without_outcome_or_verdict() -> None:
    journal = Journal().created().add(Kind.intent, "a#1", payload={"idempotency_key": "ka"}).add(Kind.done, "a#1")
    journal.add(Kind.intent, "b#1", payload={"idempotency_key": "kb"}, args='{"x":1}')
    journal.add(Kind.intent, "c#1", payload={"idempotency_key": "kc"})
    journal.add(Kind.settled, "c#1", payload={"verdict": "not_landed", "by": "verify", "given": None})
    journal.add(Kind.intent, "d#1", payload={"idempotency_key": "kd"})
    given = {"verdict": "landed", "value": "1", "actor": "eva", "note": "", "mail": 1}
    journal.add(Kind.settled, "d#1", payload={"verdict": "landed", "by": "person", "given": given})
    held = {"cause": "exception", "error": "OSError: x", "verify_error": "KeyError: y"}
    journal.add(Kind.noted, "b#1", "held", payload=held)
    parked = row(Status.in_doubt, reason=reasons.of({"why": "in doubt", "waits": [{"kind": "doubt", "key": "b#1"}]}))
    (doubt,) = in_doubt_of(parked, journal.records)
    assert (doubt.key, doubt.name, doubt.args, doubt.idempotency_key) == ("b#1", "b", '{"x":1}', "kb")
    assert doubt.cause == "exception; OSError: x; verify failed: KeyError: y"
    assert doubt.since == START + 5 * SECOND
    assert [each.key for each in in_doubt_of(row(Status.running), journal.records)] == ["b#1"]
    assert in_doubt_of(row(Status.done), journal.records) == []
    journal.add(Kind.settled, "b#1", payload={"verdict": "not_landed", "by": "person", "given": given})
    journal.add(Kind.intent, "b#1", payload={"idempotency_key": "kb"})  # it is tried again: nobody was asked about that
    assert in_doubt_of(row(Status.running, summary={"held": ["b#1"]}), journal.records) == []


def test_damaged_payloads_do_not_keep_the_rest_from_being_shown() -> None:
    journal = (
        Journal().created().add(Kind.failed, "a#1", payload="{broken").add(Kind.noted, "a#1", "usage", payload="[]")
    )
    journal.claimed("w_2")
    assert len(timeline_of(row(epoch=2), journal.records)) == 3
    assert len(receipts_of(row(epoch=2), journal.records)) == 1


# what a run got of another one, on a real store


class Refused(Exception):
    pass


@hf.agent
async def gives(kind: str) -> Any:
    if kind == "nothing":
        return None
    if kind == "refused":
        raise Refused("no money")
    return {"pair": (1, "x"), "kind": kind} if kind == "value" else "x" * 100_000


@hf.agent
async def collects(kinds: list[str]) -> int:
    for kind in kinds:
        run = await hf.start(gives(kind))
        with suppress(hf.RunFailed):
            await run.result()
    return len(kinds)


def test_what_another_run_gave_is_told_as_plain_json(tmp_path: Path) -> None:
    async def go() -> tuple[list[str], list[Any]]:
        async with hf.connect(tmp_path / "s.db", agents=[collects, gives]) as app:
            run = await app.start(collects(["value", "nothing", "refused", "large"]), id="r")
            assert await run.result() == 4
            records = [each for each in await app._parts.store.records(RunId("r")) if each.name == "hf:result"]
            told = [item.detail for item in await run.history() if item.name == "hf:result"]
            return told, [record_facts(each)["payload"] for each in records if each.kind == Kind.done]

    told, payloads = asyncio.run(go())
    assert told[:3] == ['→ {"pair":[1,"x"],"kind":"value"}', "→ done", "→ failed, Refused: no money"]
    assert told[3].endswith(" bytes)")
    assert payloads[:2] == [["gives", "done", {"pair": [1, "x"], "kind": "value"}], ["gives", "done", None]]
    assert payloads[2][:2] == ["gives", "failed"]
    assert payloads[2][2]["message"] == "no money"


# verify, on a real store


@hf.step
async def think(text: str) -> str:
    return text * 20_000


@hf.agent
async def research(text: str) -> str:
    return await think(text)


def look(path: Path, damage: str = "") -> Verification:
    async def go() -> Verification:
        async with hf.connect(str(path), agents=[research]) as app:
            run = await app.start(research("x"), id="one")
            assert await run.result() == "x" * 20_000
        if damage:
            connection = apsw.Connection(str(path))
            connection.execute(damage)
            assert connection.changes()
            connection.close()
        async with hf.connect(str(path)) as app:
            return await app.get("one").verify_journal()

    return asyncio.run(go())


def test_a_sound_run_is_verified_with_its_blobs(tmp_path: Path) -> None:
    found = look(tmp_path / "a.db")
    assert (found.is_ok, found.problem, found.seq) == (True, None, None)
    assert found.blobs == 1
    assert found.records >= 4


@pytest.mark.corrupts
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE records SET payload = '1' WHERE kind = 'done'", "does not fit its hash"),
        ("DELETE FROM records WHERE kind = 'done'", "is missing"),
        ("DELETE FROM records WHERE kind = 'finished'", "the run says"),
        ("UPDATE runs SET status = 'failed'", "row"),
        ("UPDATE runs SET summary = '{'", "cannot be read"),
        ("DELETE FROM blobs", "blob"),
        ("UPDATE blobs SET data = zeroblob(length(data))", "damaged"),
    ],
)
def test_damage_is_reported_and_not_raised(tmp_path: Path, damage: str, words: str) -> None:
    found = look(tmp_path / "a.db", damage)
    assert found.is_ok is False
    assert words in str(found.problem)


def test_an_unknown_run_is_an_error(tmp_path: Path) -> None:
    async def go() -> None:
        async with hf.connect(str(tmp_path / "a.db")) as app:
            with pytest.raises(RunNotFound):
                await verify(app._store, "nobody")

    asyncio.run(go())
