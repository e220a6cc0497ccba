"""What can be proven after the demo: journal, tally and mailbox compared. Every statement is computed, none is assumed.

The three were written by different processes: the journal by Holdfast, the tally by the bodies that really ran, the
mailbox by the mail server, which keeps everything it is sent.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from signal import SIGKILL
from typing import Any

from holdfast.base.config import Settings
from holdfast.demo.story import RUN_ID, DemoFailed, Performance, Places, lines_of
from holdfast.history.receipts import receipts_of
from holdfast.journal.verification import Verification, verify
from holdfast.model import OUTCOMES, Kind, Record, RunRow, Status
from holdfast.store import open_store


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement, and whether it is true."""

    section: str
    what: str
    is_ok: bool
    detail: str = ""


@dataclass(slots=True)
class Findings:
    """What the demo proved; `facts` is the same for machines."""

    all: list[Finding] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, section: str, what: str, is_ok: bool, *, detail: str = "") -> None:
        self.all.append(Finding(section, what, is_ok, detail))

    @property
    def wrong(self) -> list[Finding]:
        return [each for each in self.all if not each.is_ok]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was left behind."""

    ended: list[Performance]
    row: RunRow
    records: list[Record]
    chain: Verification
    begun: list[tuple[int, str]]  #: (pid, key) of each body that began
    mails: list[dict[str, Any]]
    lookups: list[dict[str, Any]]
    report: str

    def outcomes(self) -> dict[str, Record]:
        """How each call first ended."""
        found: dict[str, Record] = {}
        for record in self.records:
            if record.kind in OUTCOMES:
                found.setdefault(record.key, record)
        return found

    def cut_off(self, number: int) -> list[str]:
        """Calls whose body began in this process and whose outcome it did not record."""
        pid = self.ended[number - 1].pid
        done = {r.key for r in self.records if r.epoch == number and r.kind in OUTCOMES}
        return sorted({key for owner, key in self.begun if owner == pid} - done)

    def ran_again(self) -> list[str]:
        """Calls whose body began although it should not: after it had completed, or, for an effect, a second time."""
        epochs = {each.pid: number for number, each in enumerate(self.ended, start=1)}
        effects = {r.key for r in self.records if r.kind == Kind.intent}
        settled = {r.key for r in self.records if r.kind == Kind.settled}
        found = []
        for key, outcome in self.outcomes().items():
            began_in = [epochs.get(pid, len(epochs) + 1) for pid, each in self.begun if each == key]
            if key in effects:
                is_ok = len(began_in) == 1 and (key in settled or began_in == [outcome.epoch])
            else:  # the last time is the one that has the outcome; before that it was cut off
                is_ok = began_in.count(outcome.epoch) == 1 and max(began_in) == outcome.epoch
            if not is_ok:
                found.append(key)
        return sorted(found)


async def gather_evidence(places: Places, ended: list[Performance]) -> Evidence:
    store = open_store(str(places.db), settings=Settings())
    await store.open(read_only=True)
    try:
        loaded = await store.load(RUN_ID)
        chain = await verify(store, RUN_ID)
    finally:
        await store.close()
    if loaded is None:
        raise DemoFailed(f"There is no run {RUN_ID} in {places.db}.")
    log = lines_of(places.mailbox)
    return Evidence(
        ended,
        *loaded,
        chain=chain,
        begun=[(line["pid"], line["key"]) for line in lines_of(places.tally)],
        mails=[line for line in log if line["what"] == "received"],
        lookups=[line for line in log if line["what"] == "asked"],
        report=places.report.read_text(encoding="utf-8") if places.report.exists() else "",
    )


def examine(evidence: Evidence) -> Findings:
    """All findings, in the order in which they are told."""
    findings = Findings()
    for part in (_processes, _mails, _bodies, _doubts, _saved, _journal):
        part(evidence, findings)
    return findings


def _processes(evidence: Evidence, findings: Findings) -> None:
    section = "Four processes, one run"
    claims = [json.loads(r.payload or "{}")["pid"] for r in evidence.records if r.kind == Kind.claimed]
    pids = [each.pid for each in evidence.ended]
    findings.facts["pids"] = pids
    kills = findings.facts["kills"] = []
    outages = receipts_of(evidence.row, evidence.records)
    for number, each in enumerate(evidence.ended[:-1], start=1):
        cut_off = evidence.cut_off(number)
        is_as_told = each.returncode == -SIGKILL and _was_there(evidence, number, cut_off)
        down_s = outages[number - 1].down_s if number <= len(outages) else None
        kills.append({"pid": each.pid, "signal": -each.returncode, "where": each.act.where, "cut_off": cut_off})
        kills[-1]["down_s"] = down_s
        findings.add(
            section, f"pid {each.pid} killed", is_as_told, detail=f"{each.act.where}: {', '.join(cut_off)} cut off"
        )
    last = evidence.ended[-1]
    is_done = last.returncode == 0 and evidence.row.status is Status.done
    findings.add(section, f"pid {last.pid} finished", is_done, detail=f"run {evidence.row.id} is {evidence.row.status}")
    if claims != pids or len(set(pids)) != len(pids):
        findings.add(section, "other processes", False, detail=f"the journal names {claims}, the demo started {pids}")


def _was_there(evidence: Evidence, number: int, cut_off: list[str]) -> bool:
    """Did the process really die at the place that the story tells?"""
    here = [r for r in evidence.records if r.epoch == number]
    intents = {r.key for r in here if r.kind == Kind.intent}
    match number:
        case 1:
            branches = {key.partition("/")[0] for key in cut_off}
            whole = {r.key.partition("/")[0] for r in here if r.name == "digest" and r.kind == Kind.done}
            return bool(branches) and bool(whole) and not branches & whole
        case 2:
            return len(cut_off) == 1 and not intents
        case _:
            return len(cut_off) == 1 and cut_off[0] in intents and cut_off[0].startswith("send_email")


def _mails(evidence: Evidence, findings: Findings) -> None:
    section = "What the mail server saw"
    keys = {
        r.key: f"<{json.loads(r.payload or '{}')['idempotency_key']}@example.org>"
        for r in evidence.records
        if r.kind == Kind.intent and r.name == "send_email"
    }
    seen = Counter(mail["message_id"] for mail in evidence.mails)
    readers = Counter(reader for mail in evidence.mails for reader in mail["to"])
    findings.facts["mails"] = [
        {"to": mail["to"], "message_id": mail["message_id"], "seen": seen[mail["message_id"]]}
        for mail in evidence.mails
    ]
    for key, message_id in keys.items():
        mail = next((m for m in evidence.mails if m["message_id"] == message_id), None)
        times = seen[message_id]
        if mail is None:
            findings.add(section, key, False, detail=f"recorded as sent, not received: {message_id}")
            continue
        to = mail["to"][0]
        is_report = mail["text"].split() == evidence.report.split()
        findings.add(
            section,
            to,
            times == 1 and readers[to] == 1 and is_report,
            detail=f"{_times(readers[to])}, {parsedate_to_datetime(mail['at']):%H:%M:%S} UTC, "
            f"{'the report' if is_report else 'not the report'}, id {message_id[1:12]}…",
        )
    strays = [m["message_id"] for m in evidence.mails if m["message_id"] not in keys.values()]
    if strays or not keys:
        findings.add(section, "other mails", False, detail=f"{strays or 'none was sent'}")


def _bodies(evidence: Evidence, findings: Findings) -> None:
    section = "What ran, and how often"
    outcomes = evidence.outcomes()
    effects = {r.key for r in evidence.records if r.kind == Kind.intent}
    again = evidence.ran_again()
    told = (
        f"run again, although they had completed: {', '.join(again)}" if again else "none of them ran again after that"
    )
    counted = f"{len(outcomes.keys() - effects)} steps and {len(effects)} effects"
    findings.add(section, f"{len(outcomes)} calls completed", not again and bool(outcomes), detail=f"{counted}; {told}")
    begun = Counter(key for _, key in evidence.begun)
    repeated = sorted(key for key, times in begun.items() if times > 1 and key not in again)
    is_ok = bool(repeated) and all(any(key in evidence.cut_off(n) for n in (1, 2)) for key in repeated)
    told = f"{', '.join(repeated) or 'none'}: cut off, so the next process ran them anew"
    findings.add(section, f"{len(repeated)} steps cut off", is_ok, detail=told)
    missing = sorted(begun.keys() - outcomes.keys())
    if missing:
        findings.add(section, "without outcome", False, detail=", ".join(missing))
    findings.facts["bodies"] = {"completed": len(outcomes), "ran_again": again, "cut_off_and_repeated": repeated}


def _doubts(evidence: Evidence, findings: Findings) -> None:
    section = "What was in doubt"
    doubts = findings.facts["in_doubt"] = []
    for record in evidence.records:
        if record.kind != Kind.settled:
            continue
        note = json.loads(record.payload or "{}")
        intent = next(r for r in evidence.records if r.kind == Kind.intent and r.key == record.key)
        message_id = f"<{json.loads(intent.payload or '{}')['idempotency_key']}@example.org>"
        found = [each["found"] for each in evidence.lookups if each["message_id"] == message_id]
        told = {each: note[each] for each in ("verdict", "by", "evidence")}
        doubts.append({"key": record.key, **told, "found": found})
        times = sum(mail["message_id"] == message_id for mail in evidence.mails)
        is_ok = (note["verdict"], note["by"], found, times) == ("landed", "verify", [1], 1)
        asked = f"{note['by']} asked the mail server, which had it {_times(sum(found))}: {note['verdict']}"
        sent = "not sent again" if times == 1 else f"sent {_times(times)}"
        cause = note["evidence"].get("cause")
        findings.add(section, record.key, is_ok, detail=f"{cause} between intent and outcome; {asked}; {sent}")
    if len(doubts) != 1:
        findings.add(section, "effects in doubt", False, detail=f"{len(doubts)} were settled, one was expected")


def _saved(evidence: Evidence, findings: Findings) -> None:
    receipts = receipts_of(evidence.row, evidence.records)
    saved = findings.facts["saved"] = {
        "calls": sum(r.replayed for r in receipts),
        "input_tokens": sum(r.saved_input_tokens for r in receipts),
        "output_tokens": sum(r.saved_output_tokens for r in receipts),
        "cost": round(sum(r.saved_cost for r in receipts), 6),
        "seconds": round(sum(r.saved_s for r in receipts), 3),
    }
    tokens = saved["input_tokens"] + saved["output_tokens"]
    findings.add(
        "What three resumes saved",
        f"{saved['calls']} calls",
        len(receipts) == len(evidence.ended) - 1 and min(saved.values()) > 0 and not evidence.ran_again(),
        detail=f"answered by the journal: {tokens:,} tokens, ${saved['cost']:.4f}, "
        f"{saved['seconds']:.1f}s not spent again",
    )


def _journal(evidence: Evidence, findings: Findings) -> None:
    chain, total = evidence.chain, evidence.row.head_seq
    verified = chain.records if chain.is_ok else (chain.seq or 1) - 1
    findings.facts["chain"] = {"is_ok": chain.is_ok, "verified": verified, "records": total}
    is_whole = chain.is_ok and verified == total
    said = chain.problem or "records, each hashed together with the one before it"
    findings.add("The journal", f"verified {verified}/{total}", is_whole, detail=said)


def _times(number: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(number, f"{number} times")
