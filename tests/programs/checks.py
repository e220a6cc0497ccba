"""What must be true when all programs of a batch are over: their ends, the world, the journals; and nothing is left."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from holdfast.base.clock import now_us
from holdfast.codec import decode_error
from holdfast.history.facts import note_of
from holdfast.history.timeline import timeline_of
from holdfast.journal.blobs import stored_text
from holdfast.model import Kind, Mail, Proof, QuestionRow, Record, RunFilter, RunRow, Status, WorkerId
from holdfast.store.contract import Store
from holdfast.testing import Ledger, check_history
from holdfast.testing.reading import read
from holdfast.verbs.agent import Call
from tests.programs.agents import Deed, last_word, program
from tests.programs.oracle import Act, Expected, expect
from tests.programs.trees import Node

_PAGE = 500
_A_DAY_US = 86_400_000_000
#: Clocks of a sender and of a worker are read before their commits.
_SLACK_US = 1_000_000

#: Was the process with this pid stopped at some moment between these two?
WasStopped = Callable[[int, int, int], bool]


@dataclass
class Told:
    """A run, all that is stored of it."""

    row: RunRow
    records: list[Record]
    mail: list[Mail]
    tree: Node
    x: int
    end: str  #: what it ended with, as text
    deeds: list[Deed] = field(default_factory=list)


@dataclass
class Left:
    """All that is in the store when the workers have gone."""

    runs: dict[str, Told]
    dead: dict[WorkerId, Proof]
    claimable: list[RunRow]
    next_wake: int | None
    questions: list[QuestionRow]


async def rows_of(store: Store) -> list[RunRow]:
    rows: list[RunRow] = []
    while True:
        page = await store.runs(RunFilter(limit=_PAGE, before_id=rows[-1].id if rows else None))
        rows += page
        if len(page) < _PAGE:
            return rows


async def input_of(store: Store, row: RunRow, first: Record) -> tuple[Node, int]:
    """The program of a run, and the number that it was given."""
    call = Call._decoded(program, await stored_text(store, row.id, first.args))
    tree, x = (*call.args, *call.kwargs.values())
    return tree, x


async def _look(store: Store) -> Left:
    runs = {}
    for row in await rows_of(store):
        loaded = await store.load(row.id)
        assert loaded is not None
        records = loaded[1]
        end = next((r for r in reversed(records) if r.kind == Kind.finished), None)
        text = await stored_text(store, row.id, end.payload) if end is not None else ""
        tree, x = await input_of(store, row, records[0])
        runs[str(row.id)] = Told(row, records, await store.mail(row.id, after=0), tree, x, text)
    return Left(
        runs,
        await store.dead_workers(),
        await store.ready(agents=[program.name], queues=None, now=now_us() + _A_DAY_US, limit=10),
        await store.next_wake(),
        await store.questions(only_open=True),
    )


def look(url: str, world: Path) -> Left:
    """Read the store and the world."""
    left = read(url, _look)
    for path in sorted(world.iterdir()):
        for line in path.read_text().splitlines():
            deed = Deed(**json.loads(line))
            if deed.run in left.runs:
                left.runs[deed.run].deeds.append(deed)
            else:
                raise AssertionError(f"{deed} is of a run that is not stored")
    return left


@dataclass
class Findings:
    """What is wrong, by run (None: the store), and what is unusual and allowed."""

    wrong: dict[str | None, list[str]] = field(default_factory=lambda: defaultdict(list))
    more: dict[str, list[str]] = field(default_factory=dict)  #: by run: what else a person may want to see
    late: list[str] = field(default_factory=list)  #: what a process did that had been stopped for longer than its lease


def check(
    left: Left,
    url: str,
    roots: Sequence[Node],
    *,
    was_stopped: WasStopped = lambda pid, began, ended: False,
    ledger: Ledger | None = None,
    cancelled: frozenset[str] = frozenset(),
) -> Findings:
    """Compare what is left with what the programs say.

    `cancelled`: the runs that people cancelled. What such a run and those below it did until then is not certain.
    """
    found = Findings()
    for message in check_history(url, ledger):
        run_id = message.removeprefix("run ").partition(":")[0]
        found.wrong[run_id if run_id in left.runs else None].append(f"history: {message}")
    for message in left_over(left):
        found.wrong[None].append(message)
    missing = {tree.at for tree in roots} - left.runs.keys()
    found.wrong[None] += [f"{at} was accepted and is not stored" for at in sorted(missing)]
    for run_id, told in left.runs.items():
        expected = expect(told.tree, told.x)
        if run_id in cancelled and told.row.status is not Status.cancelled:
            found.wrong[run_id].append(f"people were told that it is cancelled, and it is {told.row.status}")
        if run_id.partition(".")[0] in cancelled:
            found.wrong[run_id] += _cut_short(told, expected, was_stopped, found.late)
            continue
        children = [other for other in left.runs.values() if other.row.parent_id == told.row.id]
        problems = [*_end(told, expected), *_children(children, expected), *_after_the_end(told)]
        problems += _deeds(told, expected, was_stopped, found.late)
        problems += _undo_order(told, expected)
        if problems:
            found.wrong[run_id] += problems
    found.wrong = {run_id: problems for run_id, problems in found.wrong.items() if problems}
    return found


def _cut_short(told: Told, expected: Expected, was_stopped: WasStopped, late: list[str]) -> Iterator[str]:
    """A run that was cancelled, or that was started by one: what it did, it did once."""
    if told.row.status is not Status.cancelled:
        yield from _end(told, expected)
    places = {node.at: node for node in told.tree.own() if node.kind == "effect"}
    by_place: dict[str, list[Deed]] = defaultdict(list)
    for deed in told.deeds:
        by_place[deed.at].append(deed)
    for at, deeds in by_place.items():
        act = Act(places[at], deeds[0].x, is_optional=True)
        yield from _deeds_at(told, act, deeds, was_stopped, late, is_certain=False)


def left_over(left: Left) -> Iterator[str]:
    for row in (told.row for told in left.runs.values()):
        if not row.status.is_final:
            yield f"run {row.id} is not over: {row.status} {row.reason}"
        if row.owner is not None:
            whose = f"the dead worker {row.owner}" if row.owner in left.dead else row.owner
            yield f"run {row.id} is owned by {whose}"
        if row.wake_at is not None and row.status.is_final:
            yield f"run {row.id} is {row.status} and wakes at {row.wake_at}"
    for row in left.claimable:
        yield f"run {row.id} is left to be claimed: {row.status}"
    if left.next_wake is not None:
        yield f"somebody is to be woken at {left.next_wake}"
    for question in left.questions:
        yield f"question {question.id} of run {question.run_id} is still open"


def _end(told: Told, expected: Expected) -> Iterator[str]:
    if told.row.status is Status.done:
        ended = f"done with {program.coder.loads(told.end, what='the result')}"
    elif told.row.status is Status.failed:
        error = decode_error(told.end, ())
        ended = f"failed with {type(error).__name__}: {last_word(error)}"
        if str(expected) != ended:
            ended += f" ({error})"
    else:
        ended = str(told.row.status)
    if ended != str(expected):
        yield f"it ended: {ended}; expected: {expected}"
    for record in told.records:
        if record.kind == Kind.done and record.payload and record.payload.startswith('["'):
            at, value, *_ = json.loads(record.payload)
            if at in expected.steps and value != expected.steps[at]:
                yield f"{record.key} gave {value} at {at}, expected {expected.steps[at]}"


def _children(children: Sequence[Told], expected: Expected) -> Iterator[str]:
    started = sorted((child.tree.at, child.x) for child in children)
    certain = sorted(set(started) - set(expected.lost.items()))
    if certain != sorted(expected.children.items()) or len(set(started)) < len(started):
        yield f"it started {started}, expected {sorted(expected.children.items())}, maybe {expected.lost}"


def _after_the_end(told: Told) -> Iterator[str]:
    end = next((r for r in reversed(told.records) if r.kind == Kind.finished), None)
    for mail in told.mail:
        if end is not None and mail.at > end.at + _SLACK_US:
            yield f"mail {mail.number} ({mail.kind} {mail.key}) was accepted after its end"


def _deeds(told: Told, expected: Expected, was_stopped: WasStopped, late: list[str]) -> Iterator[str]:
    by_place: dict[str, list[Deed]] = defaultdict(list)
    for deed in told.deeds:
        by_place[deed.at].append(deed)
    for at in sorted(by_place.keys() - expected.acts.keys()):
        yield f"an effect at {at} happened, and the program does not come there: {by_place[at]}"
    for at, act in expected.acts.items():
        yield from _deeds_at(told, act, by_place[at], was_stopped, late)


def _stalled(told: Told) -> set[int]:
    """The processes whose lease ran out: stopped or only slow, they may act late, and nobody can know."""
    claims = [note_of(record) for record in told.records if record.kind == Kind.claimed]
    return {first["pid"] for first, then in pairwise(claims) if then.get("proof") == "lease"}


def _deeds_at(
    told: Told, act: Act, deeds: Sequence[Deed], was_stopped: WasStopped, late: list[str], *, is_certain: bool = True
) -> Iterator[str]:
    at, word = act.node.at, act.node.word
    acts: dict[str, list[Deed]] = defaultdict(list)
    undone = {deed.key for deed in deeds if deed.what == "undo"}
    for deed in sorted(deeds, key=lambda deed: deed.done):
        if deed.x != act.x:
            yield f"{word} at {at} was given {deed.x}, expected {act.x}"
        if deed.what == "act":
            acts[deed.key].append(deed)
    outcomes = {r.key: r for r in told.records if r.kind == Kind.done}
    intents = defaultdict(list)
    for record in told.records:
        if record.kind == Kind.intent:
            intents[record.key].append(record)
    stalled = _stalled(told)
    completed = {deed.key for deed in deeds if deed.what == "act" and deed.call in outcomes}
    if not act.is_optional and len(completed) != 1:
        yield f"{word} at {at} was completed under {len(completed)} keys"
    if act.is_optional and len(acts) > 1 and word != "stubborn":
        yield f"{word} at {at} happened under {len(acts)} keys"
    for key, same in acts.items():
        call = same[0].call
        stopped = [d for d in same if d.pid in stalled or was_stopped(d.pid, d.began, d.done)]
        outcome = outcomes.get(call)
        after = [deed for deed in same if outcome is not None and deed.began > outcome.at]
        if len(same) > len(intents[call]):
            yield f"{call} at {at} happened {len(same)} times under {len(intents[call])} intents"
        if word in ("sure", "both", "booked", "flaky_effect") and len(same) > 1:
            if len(same) == 2 and stopped:
                late.append(f"{told.row.id}: {call} happened twice: pid {stopped[0].pid} was stopped in it")
            else:
                yield f"{word} at {at} can be verified, and {call} happened {len(same)} times: {same}"
        for deed in after:
            if deed in stopped:
                late.append(f"{told.row.id}: {call} began in pid {deed.pid} after its outcome")
            else:
                yield f"{call} at {at} was performed again after its outcome (seq {outcome and outcome.seq}): {deed}"
        if not is_certain:
            continue
        must_be_undone = act.undone_by is not None or (word == "stubborn" and key not in completed)
        if must_be_undone and key not in undone:
            yield f"{call} at {at} was to be undone and was not"
        if not must_be_undone and key in undone:
            yield f"{call} at {at} was undone and should stand"


def _undo_order(told: Told, expected: Expected) -> Iterator[str]:
    """A saga takes back in the reverse order of outcomes."""
    calls = {deed.call: deed.at for deed in told.deeds if deed.what == "act"}
    sagas: Mapping[str, list[str]] = defaultdict(list)
    for record in told.records:
        act = expected.acts.get(calls.get(record.key, ""))
        if record.kind == Kind.done and act is not None and act.undone_by is not None:
            sagas[act.undone_by].append(act.node.at)
    first_undo: dict[str, int] = {}
    keys_done = {deed.key for deed in told.deeds if deed.what == "act" and _is_done(told, deed.call)}
    for deed in sorted((d for d in told.deeds if d.what == "undo" and d.key in keys_done), key=lambda d: d.done):
        first_undo.setdefault(deed.at, deed.done)
    for saga, places in sagas.items():
        order = sorted((at for at in places if at in first_undo), key=lambda at: first_undo[at])
        if order != [at for at in reversed(places) if at in first_undo]:
            yield f"saga {saga}: completed {places}, undone {order}"


def _is_done(told: Told, call: str) -> bool:
    return any(r.key == call and r.kind == Kind.done for r in told.records)


def story(told: Told) -> str:
    """All that is known of a run, for a person."""
    lines = [f"run {told.row.id}: {told.row.status} {told.row.reason}, given {told.x}", "program:"]
    lines += [f"  {line}" for line in str(told.tree).splitlines()]
    lines.append("timeline:")
    for item in timeline_of(told.row, told.records):
        lines.append(f"  {item.seq:4} {item.kind:9} {item.key or item.name} {item.status} {item.detail}".rstrip()[:200])
    lines.append("journal:")
    for r in told.records:
        lines.append(
            f"  {r.seq:4} {r.at} e{r.epoch} t{r.tick} {r.kind:9} {r.key} {r.name} {(r.payload or '')[:160]}".rstrip()
        )
    lines += ["mail:", *(f"  {m.number} {m.at} {m.kind} {m.key} {m.body[:100]}" for m in told.mail)]
    lines += ["world:", *(f"  {deed}" for deed in sorted(told.deeds, key=lambda d: d.done))]
    return "\n".join(lines)
