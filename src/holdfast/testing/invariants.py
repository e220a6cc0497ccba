"""What must hold in every store at every moment, checked from the outside.

The checks read rows and records only, and share nothing with the code that wrote them but the hash functions. They do
not know what an agent was meant to do; they know what no history may contain:

- who was told of something finds it in the journal (acknowledged means durable);
- a call with an outcome in force is never begun again, and has one outcome;
- an effect's body runs under an intent that is on disk, once per intent; an attempt that was cut off is followed by
  nothing but a settlement that says who decided and why;
- epochs never fall, and every new one begins with a claim, or is what a person did to a run that nobody had;
- numbers have no gaps and the hash chain holds;
- what is over stays over, unless somebody reopened it; what was cancelled ends as cancelled;
- what is said of effects holds together (`invariants_effects`): doubts, verdicts, sagas;
- so does what bodies write to streams (`invariants_streams`);
- how a wait ends is decided once;
- mail is numbered without gaps and acted on once, and what a parked run waits for does not lie unread;
- a run that is not over is owned by a live worker, or can be taken up, or waits and says for what;
- a run that was pruned had ended, and nobody can execute it; so with one that was moved to another store.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

from holdfast.base.config import Settings
from holdfast.errors import CorruptJournal, HoldfastError
from holdfast.history.facts import note_of
from holdfast.journal.forks import origin_in
from holdfast.journal.tombstones import is_empty
from holdfast.journal.verification import verify
from holdfast.model import (
    FINAL,
    OUTCOMES,
    Kind,
    Mail,
    MailKind,
    NoteKind,
    Record,
    RunId,
    RunRow,
    Status,
    Wait,
    WaitKind,
    WorkerId,
    reasons,
)
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.store.runs import every_run
from holdfast.testing.invariants_effects import effect_violations
from holdfast.testing.invariants_streams import stream_violations
from holdfast.testing.ledger import Ledger, LedgerLine
from holdfast.testing.reading import in_own_loop

_LOOKS = 5  # at a run that is being written to
_BEGINS = frozenset({Kind.started, Kind.decided, Kind.attempt, Kind.intent, Kind.child, Kind.settled})
_GOES_ON = frozenset({"not_landed", "retry"})
_DECIDERS = frozenset({"verify", "on_doubt", "person", "the store", "cancel"})
#: What is written to a run that nobody has, in an epoch of its own.
_AMENDED = (
    [(Kind.noted, NoteKind.paused)],
    [(Kind.noted, NoteKind.requeued)],
    [(Kind.noted, NoteKind.budget)],
    [(Kind.noted, NoteKind.blocked)],
    [(Kind.noted, NoteKind.moved)],
    [(Kind.noted, NoteKind.repaired)],
    [(Kind.noted, NoteKind.artifact)],
    [(Kind.noted, NoteKind.cancel)],
    [(Kind.noted, NoteKind.cancel), (Kind.finished, Status.cancelled)],
    [(Kind.noted, NoteKind.cancel), (Kind.noted, NoteKind.left_in_doubt), (Kind.finished, Status.cancelled)],
)
_INTERRUPT = "hf:interrupt"
#: Notes of mail that was read.
_TELLS_OF_MAIL = frozenset({NoteKind.paused, NoteKind.cancel, NoteKind.refused, NoteKind.unheeded, NoteKind.budget})
#: Mail that wakes whatever waits, and mail that wakes what waits for just this: the wait's kind and where it says so.
_ALWAYS_AWAITED = frozenset({MailKind.answer, MailKind.cancel, MailKind.interrupt})
_AWAITED: Mapping[str, tuple[WaitKind, Callable[[Wait], str]]] = {
    MailKind.resolve: (WaitKind.doubt, lambda wait: wait.key),
    MailKind.signal: (WaitKind.signal, lambda wait: wait.name),
    MailKind.child: (WaitKind.child, lambda wait: wait.child),
}


def check_history(
    store: str | os.PathLike[str] | Store,
    ledger: Ledger | None = None,
    *,
    acks: Iterable[tuple[str, str]] | None = None,
) -> list[str]:
    """Every broken promise in a store, one sentence each; empty when all is well. Nothing is changed.

    `ledger`: what the bodies wrote, to be compared with the journal. `acks`: what somebody was told and so must be
    there, as (run, key of a call), (run, "") for a start and (run, "finished") for an end. Call it when no run is
    being executed; the pytest plugin `holdfast.testing.fixtures` does so after every test.

    Example: `assert check_history("sqlite:///runs.db", ledger) == []`
    """
    if isinstance(store, str):
        url = store
    elif isinstance(store, os.PathLike):
        url = os.fspath(store)
    else:
        url = store.url
    lines = ledger.lines() if ledger is not None else []
    told = list(acks or ())
    return in_own_loop(lambda: _check(url, lines, told))


async def _check(url: str, lines: Sequence[LedgerLine], acks: Sequence[tuple[str, str]]) -> list[str]:
    store = open_store(url, settings=Settings())
    try:
        await store.open(read_only=True)
    except HoldfastError as error:
        return [f"the store cannot be opened: {error}"]
    try:
        return [each async for each in _violations(store, lines, acks)]
    finally:
        await store.close()


async def _violations(store: Store, lines: Sequence[LedgerLine], acks: Sequence[tuple[str, str]]) -> AsyncIterator[str]:
    dead = await store.dead_workers()
    known: dict[str, tuple[RunRow, list[Record]]] = {}
    bodies: dict[str, list[LedgerLine]] = {}
    for line in lines:
        bodies.setdefault(line.run, []).append(line)
    async for row in every_run(store):
        try:
            loaded, mail = await _loaded(store, row.id)
            verification = await verify(store, row.id)
        except CorruptJournal as error:
            yield f"run {row.id}: {error}"
            continue
        if not verification.is_ok:
            yield f"run {row.id}: it fails verification: {verification.problem}"
        if loaded is None:
            yield f"run {row.id}: it is listed and cannot be loaded"
            continue
        known[row.id] = loaded
        for found in violations_of(*loaded, mail=mail, dead=dead, lines=bodies.get(row.id, ())):
            yield f"run {row.id}: {found}"
    for run in sorted(bodies.keys() - known.keys()):
        yield f"run {run}: the ledger has it, the store does not: its bodies ran before it was stored"
    for run, key in acks:
        missing = _missing(known.get(run), key)
        if missing:
            yield f"run {run}: {missing}"


async def _loaded(store: Store, run_id: RunId) -> tuple[tuple[RunRow, list[Record]] | None, list[Mail]]:
    """A run and its mail: what a database still commits for a process that was killed is no broken promise."""
    loaded = await store.load(run_id)
    mail = await store.mail(run_id, after=0)
    for _ in range(_LOOKS):
        if loaded is None or not mail or mail[-1].number <= loaded[0].mail:
            break
        loaded = await store.load(run_id)  # something was sent between the two looks
        mail = await store.mail(run_id, after=0)
    return loaded, mail


def violations_of(
    row: RunRow,
    records: Sequence[Record],
    *,
    mail: Sequence[Mail] = (),
    dead: Iterable[WorkerId] = (),
    lines: Sequence[LedgerLine] = (),
) -> Iterator[str]:
    """The broken promises in one run."""
    if is_empty(row):
        yield from _emptied(row, mail)
        return
    yield from _numbers(row, records)
    yield from _epochs(row, records)
    yield from _endings(row, records)
    yield from _calls(records)
    yield from effect_violations(records)
    yield from stream_violations(row, records)
    yield from _mail(row, records, mail)
    yield from _left_over(row, records, mail, dead=frozenset(dead))
    yield from _bodies(records, lines)


def _missing(known: tuple[RunRow, list[Record]] | None, key: str) -> str | None:
    if known is None:
        return "its start was acknowledged, and it is not in the store"
    row, records = known
    if is_empty(row):
        return None
    if key == "finished":
        return None if row.status in FINAL else f"its end was acknowledged, and it is {row.status}"
    if key and not any(r.key == key and r.kind in OUTCOMES for r in records):
        return f"{key} was acknowledged, and its outcome is not in the journal"
    return None


def _emptied(row: RunRow, mail: Sequence[Mail]) -> Iterator[str]:
    """Of a run that was pruned or moved there is a row, and the mail that may come a second time."""
    why = reasons.why(row.reason)
    if row.owner is not None or row.wake_at is not None:
        yield f"it was {why}, and can still be executed"
    if isinstance(row.reason, reasons.Pruned) and row.status not in FINAL:
        yield f"it was pruned while it was {row.status}"
    if any(each.number > row.mail for each in mail):
        yield f"its mail has the numbers {[each.number for each in mail]}, its counter is {row.mail}"


def _numbers(row: RunRow, records: Sequence[Record]) -> Iterator[str]:
    if [r.seq for r in records] != list(range(1, len(records) + 1)):
        yield f"the numbers of its records have gaps: {[r.seq for r in records]}"
    if row.head_seq != len(records):
        yield f"its row says {row.head_seq} records, there are {len(records)}"
    if not records or records[0].kind != Kind.created:
        yield "its journal does not begin with its creation"
    if sum(r.kind == Kind.created for r in records) > 1:
        yield "it was created more than once"


def _epochs(row: RunRow, records: Sequence[Record]) -> Iterator[str]:
    epoch, claimed = 0, 0
    for record in records:
        if record.epoch < epoch:
            yield f"seq {record.seq}: epoch {record.epoch} after {epoch}: a fenced worker wrote"
        elif record.epoch > epoch and record.kind not in (Kind.created, Kind.claimed):
            written = [(r.kind, r.name) for r in records if r.epoch == record.epoch]
            is_retry = [kind for kind, _ in written] == [Kind.reopened]  # the name is who wanted it
            if written not in _AMENDED and not is_retry:
                yield f"seq {record.seq}: epoch {record.epoch} begins with {record.kind}, not with a claim"
        if record.kind == Kind.claimed:
            if record.epoch <= claimed:
                yield f"seq {record.seq}: a claim that does not raise the epoch {claimed}"
            claimed = record.epoch
        epoch = max(epoch, record.epoch)
    if row.epoch < epoch:
        yield f"its row is at epoch {row.epoch}, its journal at {epoch}"


def _endings(row: RunRow, records: Sequence[Record]) -> Iterator[str]:
    end: Record | None = None
    told: Record | None = None
    for record in records:
        if record.kind == Kind.reopened:
            told = None
        elif record.kind == Kind.noted and record.name == NoteKind.cancel:
            told = record
        if end is None:
            if record.kind == Kind.finished:
                if told is not None and record.name != Status.cancelled:
                    yield f"seq {record.seq}: it ended as {record.name}, and was cancelled at seq {told.seq}"
                end = record
                if record.name not in FINAL:
                    yield f"seq {record.seq}: it finished as {record.name!r}, which is not final"
        elif end.name == Status.done:
            yield f"seq {record.seq}: {record.kind} after it was done (seq {end.seq})"
        elif record.kind == Kind.reopened:
            if end.seq not in note_of(record).get("superseded", []):
                yield f"seq {record.seq}: reopened without superseding its end (seq {end.seq})"
            end = None
        elif record.kind != Kind.claimed:
            yield f"seq {record.seq}: {record.kind} after it had {end.name} (seq {end.seq}), and nobody reopened it"
    if end is not None and row.status is not Status.quarantined:
        # A retry that was killed between its claim and its first record: the run is owned again, its journal not yet.
        retried = row.status in (Status.running, Status.queued) and end.name != Status.done
        if row.status != end.name and not retried:
            yield f"its journal ends as {end.name}, its row says {row.status}"
    elif end is None and row.status in FINAL:
        yield f"its row says {row.status}, its journal has no end"


def _calls(records: Sequence[Record]) -> Iterator[str]:
    outcomes: dict[str, Record] = {}
    intents: dict[str, Record] = {}
    settled: dict[str, Record] = {}
    decided: dict[str, Record] = {}
    forgotten: set[str] = set()  # with its turn
    for record in records:
        call = record.key
        if record.kind == Kind.checkpoint:  # a step that is new before the loop is forgotten with its turn
            for late in forgotten:
                outcomes.pop(late, None)
            forgotten.clear()
        if record.kind == Kind.reopened:
            decided = {}
            gone = set(note_of(record).get("superseded", []))
            intents |= {
                each: last
                for each, outcome in outcomes.items()
                if outcome.seq in gone and (last := _doubted(each, records[: outcome.seq])) is not None
            }
            outcomes = {each: outcome for each, outcome in outcomes.items() if outcome.seq not in gone}
        if not record.key or record.kind == Kind.noted:
            continue
        former, intent = outcomes.get(call), intents.get(call)
        if former is not None and former.kind == Kind.cancelled and record.epoch > former.epoch:
            former = None  # taken up again, the code made it anew
            del outcomes[call]
            decided.pop(call, None)
        if former is not None and (record.kind in _BEGINS or record.kind in OUTCOMES):
            yield f"{record.key}: {record.kind} at seq {record.seq} after its outcome at seq {former.seq}"
        match record.kind:
            case Kind.intent:
                if intent is not None:
                    yield f"{record.key}: an intent at seq {record.seq}; the one at seq {intent.seq} was never settled"
                intents[call] = record
            case Kind.settled:
                note = note_of(record)
                if intent is None and note.get("by") != "cancel":
                    yield f"{record.key}: settled at seq {record.seq}, and nothing was in doubt"
                if note.get("by") not in _DECIDERS or not note.get("evidence"):
                    yield f"{record.key}: settled at seq {record.seq} without saying by whom, or without evidence"
                settled[call] = record
                if note.get("verdict") in _GOES_ON:
                    intents.pop(call, None)
            case Kind.decided:
                if call in decided:
                    yield f"{record.key}: decided at seq {decided[call].seq}, and again at seq {record.seq}"
                decided[call] = record
            case Kind.attempt:
                if intent is not None and intent.epoch != record.epoch:
                    yield f"{record.key}: cut off at seq {intent.seq}, called a failure elsewhere at seq {record.seq}"
                intents.pop(call, None)
            case kind if kind in OUTCOMES:
                by = settled.get(call)
                if intent is not None and intent.epoch != record.epoch and (by is None or by.seq < intent.seq):
                    yield f"{record.key}: cut off at seq {intent.seq}, ended at seq {record.seq}, and nobody settled it"
                outcomes[call] = record
                if record.turn and not call.startswith("@"):
                    forgotten.add(call)
                intents.pop(call, None)
            case _:
                pass


def _doubted(call: str, records: Sequence[Record]) -> Record | None:
    """The intent of a call that ended in doubt: if the run is opened again, it is settled again."""
    own = [r for r in records if r.key == call and r.kind in (Kind.intent, Kind.settled)]
    if not own or own[-1].kind != Kind.settled or note_of(own[-1]).get("verdict") != "fail":
        return None
    return next((r for r in reversed(own) if r.kind == Kind.intent), None)


def _mail(row: RunRow, records: Sequence[Record], mail: Sequence[Mail]) -> Iterator[str]:
    origin = origin_in(records[0]) if records else None  # a fork goes on behind what the original had
    if [m.number for m in mail] != list(range(origin.mail + 1 if origin else 1, row.mail + 1)):
        yield f"its mail has the numbers {[m.number for m in mail]}, its counter is {row.mail}"
    used = Counter(_mail_of(record) for record in _in_force(records))
    for number, times in sorted(used.items()):
        if number and times > 1:
            yield f"mail {number} was acted on {times} times"
        if number > row.mail:
            yield f"mail {number} was acted on, and only {row.mail} were accepted"


def _in_force(records: Sequence[Record]) -> Iterator[Record]:
    """The records that count: no retry did them anew, and no wait was given up with what it was given."""
    gone = {seq for r in records if r.kind == Kind.reopened for seq in note_of(r).get("superseded", [])}
    given_up = {r.key: r.seq for r in records if r.kind == Kind.cancelled and r.seq not in gone}
    for r in records:
        if r.seq not in gone and not (r.kind == Kind.decided and r.seq < given_up.get(r.key, 0)):
            yield r


def _mail_of(record: Record) -> int:
    """The mail that a record acts on; 0 if none."""
    note = note_of(record)
    match record.kind:
        case Kind.settled:
            note = note.get("given") or {}
        case Kind.decided:
            pass
        case Kind.noted if record.name in _TELLS_OF_MAIL:
            pass
        case Kind.done if record.name == _INTERRUPT:
            pass
        case _:
            return 0
    return int(note.get("mail") or 0)


def _left_over(
    row: RunRow, records: Sequence[Record], mail: Sequence[Mail], *, dead: frozenset[WorkerId]
) -> Iterator[str]:
    match row.status:
        case Status.done | Status.failed | Status.cancelled:
            if row.owner is not None:
                yield f"it is {row.status} and still owned by {row.owner}"
        case Status.running:
            if row.owner is None:
                yield "it is running and nobody owns it"
        case Status.queued:
            if row.owner is not None and row.owner not in dead:
                yield f"it is queued and owned by {row.owner}"
            if row.wake_at is None:
                yield "it is queued and nobody may ever claim it"
        case Status.quarantined:
            yield f"it is quarantined: {reasons.detail_of(row.reason)}"
        case _:
            if row.owner is not None:
                yield f"it is {row.status} and owned by {row.owner}"
            if not reasons.why(row.reason):
                yield f"it is {row.status} and does not say why"
            if row.status in (Status.waiting, Status.sleeping, Status.in_doubt):
                yield from _waits(row, records, mail)
            elif row.wake_at is not None:
                yield f"it is {row.status} and would be claimed at {row.wake_at}"


def _waits(row: RunRow, records: Sequence[Record], mail: Sequence[Mail]) -> Iterator[str]:
    """What a parked run waits for is open, its time is known, and nothing of it lies unread."""
    waits = reasons.waits_of(row.reason)
    if not waits:
        yield f"it is {row.status}, and about nothing"
    if row.status is Status.in_doubt and not any(wait.kind is WaitKind.doubt for wait in waits):
        yield "it is in doubt, and no effect is"
    gone = {seq for r in records if r.kind == Kind.reopened for seq in note_of(r).get("superseded", [])}
    due = reasons.due_of(row.reason)
    if row.wake_at != due:
        yield f"it waits until {due} and would be claimed at {row.wake_at}"
    for wait in waits:
        own = (r for r in reversed(records) if r.key == wait.key and r.kind != Kind.noted and r.seq not in gone)
        last = next(own, None)
        if wait.kind is WaitKind.doubt and (last is None or last.kind not in (Kind.intent, Kind.settled)):
            yield f"it is in doubt about {wait.key}, whose last record is {last.kind if last else 'missing'}"
        elif last is not None and last.kind in OUTCOMES:
            yield f"it waits for {wait.key}, which has ended (seq {last.seq})"
    for each in mail:
        kind, subject = _AWAITED.get(each.kind, (WaitKind.unknown, lambda wait: ""))
        is_awaited = any(wait.kind is kind and subject(wait) == each.key for wait in waits)
        if each.number > reasons.seen_mail(row.reason) and (each.kind in _ALWAYS_AWAITED or is_awaited):
            yield f"it is {row.status}, and nobody woke it for mail {each.number} ({each.kind} {each.key})"


def _bodies(records: Sequence[Record], lines: Sequence[LedgerLine]) -> Iterator[str]:
    intents = Counter((r.key, r.attempt) for r in records if r.kind == Kind.intent)
    begins = Counter((line.key, line.attempt) for line in lines if line.what == "begin" and line.kind == "effect")
    for (key, attempt), times in sorted(begins.items()):
        if times > intents[key, attempt]:
            yield f"{key}: the body of attempt {attempt} began {times} times under {intents[key, attempt]} intents"
    superseded = {seq for r in records if r.kind == Kind.reopened for seq in note_of(r).get("superseded", [])}
    # The thread of a cancelled `def` step may begin its work late.
    ended = {r.key: r for r in records if r.kind in OUTCOMES - {Kind.cancelled} and r.seq not in superseded}
    denied = {
        (r.key, r.attempt): r
        for r in records
        if r.kind == Kind.settled and note_of(r).get("verdict") == "not_landed" and note_of(r).get("by") == "verify"
    }
    owners = {note_of(r).get("pid"): r.epoch for r in records if r.kind == Kind.claimed}
    for line in lines:
        outcome = ended.get(line.key)
        if line.what == "begin" and outcome is not None and line.at > outcome.at:
            if line.kind == "step" and owners.get(line.pid, outcome.epoch) < outcome.epoch:
                continue  # it was taken over from while it lived, and has not heard of that yet
            yield f"{line.key}: a {line.kind}'s body began (pid {line.pid}) after its outcome at seq {outcome.seq}"
        verdict = denied.get((line.key, line.attempt))
        if line.what == "end" and line.error is None and verdict is not None and line.kind == "effect":
            yield f"{line.key}: attempt {line.attempt} happened, and verify said that it did not (seq {verdict.seq})"
