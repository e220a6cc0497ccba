"""`holdfast show`"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from holdfast.base.hints import hint
from holdfast.cli.failure import INTEGRITY, OK
from holdfast.cli.frames import next_steps
from holdfast.cli.plain import plain_note, plain_text, plain_value
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.story import story_of
from holdfast.cli.text import LOST, SHAPES, amount, clean, count, duration, pad, paint, shorten, to_json, wrapped
from holdfast.cli.timeline import painted, timeline_lines, with_deciders
from holdfast.cli.waits import now_of
from holdfast.control import control
from holdfast.errors import HoldfastError
from holdfast.history.history import (
    DoubtInfo,
    Receipt,
    RunInfo,
    TimelineItem,
    in_doubt_of,
    info_of,
    receipts_of,
    timeline_of,
    unrecorded_text,
)
from holdfast.journal.blobs import stored_text
from holdfast.journal.blocks import source_in, told
from holdfast.journal.tombstones import refuse_empty
from holdfast.journal.verification import Verification, verify
from holdfast.model import Kind, Record, RunId, RunRow, Status
from holdfast.store.contract import Store

#: Records whose text is a note of ours, not a value of the user's.
_OURS = frozenset({Kind.started, Kind.decided, Kind.attempt, Kind.settled, Kind.noted})


@dataclass(frozen=True, slots=True)
class Shown:
    """All that there is to show of a run."""

    info: RunInfo
    records: list[Record]
    timeline: list[TimelineItem]
    receipts: list[Receipt]
    doubts: list[DoubtInfo]
    verification: Verification
    given: str
    result: str
    gone: str  #: where what it did is, if not here


@command("show")
@run_argument()
@click.option("--journal", is_flag=True, help="The records as they are stored.")
@click.option("--story", is_flag=True, help="The same in sentences.")
def show_command(setup: Setup, run: str, journal: bool, story: bool) -> int:
    """Show what happened in a run.

    Calls in the order they ended, outages, what is in doubt, and what each resume saved. The journal is verified;
    exit code 6 says that it is damaged. Piped, lines of: time, call, kind, status, seconds, attempt, detail.
    """

    async def read(store: Store) -> Shown:
        return await _read(store, run)

    shown = with_store(setup, read)
    if shown.gone and not setup.is_json:
        if setup.is_table:
            print(_header(shown, setup.has_color(sys.stdout)))
        print(clean(shown.gone, one_line=True), file=sys.stderr)
        return OK
    if journal:
        _print_journal(setup, shown)
    elif setup.is_json:
        print(to_json(_as_dict(shown)))
    elif story:
        print("\n".join(clean(line) for line in story_of(shown.info, shown.timeline, shown.receipts)))
    elif setup.is_table:
        _print_table(shown, setup.has_color(sys.stdout), shutil.get_terminal_size().columns)
    else:
        for item in shown.timeline:
            print(_line(item))
        if shown.info.status is Status.blocked:
            print("\n".join(map(clean, told(shown.info.id, shown.info.reason or {}))), file=sys.stderr)
    if not shown.verification.is_ok:
        print(f"✖ {clean(str(shown.verification.problem))}", file=sys.stderr)
        return INTEGRITY
    return OK


async def _read(store: Store, given: str) -> Shown:
    row = await control.find(store, given)
    verification = await verify(store, row.id)
    loaded = await store.load(row.id)
    assert loaded is not None
    row, records = loaded
    is_lost = row.owner is not None and row.owner in await store.dead_workers()
    asked = await store.questions(run_id=row.id, only_open=False)
    created = next((r.args for r in records if r.kind == Kind.created), None)
    ended = next((r.payload for r in reversed(records) if r.kind == Kind.finished and r.name == "done"), None)
    return Shown(
        info_of(row, is_lost=is_lost),
        records,
        with_deciders(timeline_of(row, records, is_lost=is_lost), asked),
        receipts_of(row, records),
        await _doubts(store, row, records) if verification.is_ok else [],
        verification,
        await text_if_any(store, row.id, created) if verification.is_ok else created or "",
        await text_if_any(store, row.id, ended) if verification.is_ok else ended or "",
        _gone(row),
    )


async def _doubts(store: Store, row: RunRow, records: list[Record]) -> list[DoubtInfo]:
    found = in_doubt_of(row, records)
    return [replace(each, args=await text_if_any(store, row.id, each.args)) for each in found]


def doubt_facts(doubt: DoubtInfo) -> dict[str, Any]:
    """An effect in doubt, for JSON."""
    return {**doubt.as_dict(), "args": plain_value(doubt.args)}


def _gone(row: RunRow) -> str:
    try:
        refuse_empty(row)
    except HoldfastError as error:
        return str(error)
    return ""


async def text_if_any(store: Store, run_id: RunId, stored: str | None) -> str:
    """A value's text, wherever it is kept; nothing if there is no value."""
    return await stored_text(store, run_id, stored) if stored is not None else ""


def _as_dict(shown: Shown) -> dict[str, Any]:
    return {
        "run": _run_facts(shown.info),
        "input": plain_value(shown.given),
        "result": plain_value(shown.result),
        "timeline": [item.as_dict() for item in shown.timeline],
        "in_doubt": [doubt_facts(doubt) for doubt in shown.doubts],
        "receipts": [receipt.as_dict() for receipt in shown.receipts],
        "verification": shown.verification.as_dict(),
    }


def _run_facts(info: RunInfo) -> dict[str, Any]:
    facts, reason = info.as_dict(), info.reason or {}
    recorded = [{**each, "args": plain_value(each.get("args"))} for each in reason.get("recorded", [])]
    return {**facts, "reason": {**reason, "recorded": recorded}} if recorded else facts


def _line(item: TimelineItem) -> str:
    took = "" if item.took_s is None else f"{item.took_s:.6f}"
    at = item.at.isoformat(timespec="milliseconds")
    parts = (at, item.key or item.name, item.kind, item.status, took, item.attempt, item.detail)
    return "\t".join(clean(str(part), one_line=True) for part in parts)


# for a terminal


def _print_table(shown: Shown, has_color: bool, columns: int) -> None:
    print(_header(shown, has_color))
    for label, text in (("input", shown.given), ("result", shown.result)):
        if text and text != "{}":
            value = clean(plain_text(text), one_line=True)
            print(f"{paint(pad(label, 8), 'dim', has_color)}{shorten(value, columns - 9)}")
    print()
    for line in timeline_lines(shown.timeline, columns):
        print(painted(line, has_color))
    for lines in (_doubt_lines(shown), _receipt_lines(shown.receipts)):
        if lines:
            print()
        for text in lines:
            print(wrapped(text, columns - 1, indent=2) if "holdfast" not in text else text)
    for text in _next_lines(shown):
        print(paint(text, "bold", has_color))


def _header(shown: Shown, has_color: bool) -> str:
    info, checked = shown.info, shown.verification
    shape, word, style = LOST if info.is_lost else SHAPES[info.status]
    now = clean(now_of(info), one_line=True)
    status = f"{shape} {word}" + (f": {now}" if now and not info.is_lost else "")
    verified = (
        f"✔ verified {checked.records}/{info.records}" if checked.is_ok else f"✖ damaged at seq {checked.seq or '?'}"
    )
    if checked.is_ok and checked.is_empty:
        verified = "what it did is not here"
    code = next((i.detail for i in shown.timeline if i.kind == "started"), "")
    title = [paint(clean(info.agent, one_line=True), "bold", has_color), clean(info.id, one_line=True)]
    facts = [
        f"thread {clean(info.thread_id, one_line=True)}",
        paint(verified, "green" if checked.is_ok else "red", has_color),
        clean(code, one_line=True),
        amount(info.cost),
    ]
    return "  ".join([*title, paint(status, style, has_color)]) + "\n" + "  ".join(part for part in facts if part)


def _doubt_lines(shown: Shown) -> list[str]:
    lines = []
    for doubt in shown.doubts:
        lines.append(clean(f"◈ {doubt.key} may or may not have happened: {doubt.cause}", one_line=True))
        lines += [f"  {step}" for step in ways_to_settle(shown.info.id, doubt.key)]
    return lines


def ways_to_settle(run_id: str, key: str) -> tuple[str, str, str]:
    """The commands that say what became of a call."""
    verdicts = (("--happened", "RESULT"), ("--not-happened",), ("--fail", "MESSAGE"))
    first, second, third = (hint("resolve", run_id, key, options=each) for each in verdicts)
    return first, second, third


def _receipt_lines(receipts: list[Receipt]) -> list[str]:
    lines = []
    for number, receipt in enumerate(receipts, start=1):
        tokens = receipt.saved_input_tokens + receipt.saved_output_tokens
        saved = [
            duration(receipt.saved_s) if receipt.saved_s >= 0.001 else "",
            count(tokens, "token") if tokens else "",
        ]
        saved = [part for part in (*saved, amount(receipt.saved_cost)) if part]
        parts = [
            f"resume {number}: {count(receipt.replayed, 'call')} from the journal, {receipt.executed} executed",
            f"saved {' · '.join(saved)}" if saved else "",
            unrecorded_text(receipt.unrecorded),
            "code changed" if receipt.code_changed else "",
        ]
        lines.append("↺ " + ", ".join(part for part in parts if part))
    return lines


def _next_lines(shown: Shown) -> list[str]:
    info = shown.info
    if info.status is Status.blocked and not info.is_lost:
        return ["", *map(clean, told(info.id, info.reason or {}))]
    steps = next_steps(info, source_in(shown.records)) if info.status is not Status.in_doubt or info.is_lost else []
    return ["", *(f"Have it go on with: {step}" for step in steps)] if steps else []


# the journal


def _print_journal(setup: Setup, shown: Shown) -> None:
    if setup.is_json:
        items = [_record_dict(record) for record in shown.records]
        print(to_json({"run": _run_facts(shown.info), "records": items, "verification": shown.verification.as_dict()}))
        return
    limit = shutil.get_terminal_size().columns - 1 if setup.is_table else None
    show: Callable[[str], str] = (
        (lambda text: text) if limit is None else (lambda text: shorten(text.expandtabs(), limit))
    )
    for r in shown.records:
        parts = (r.seq, r.at, f"e{r.epoch}", r.kind, r.key, r.name, r.attempt, r.took, r.args or "", r.payload or "")
        print(show("\t".join(clean(str(part), one_line=True) for part in parts)))


def _record_dict(record: Record) -> dict[str, Any]:
    facts = {name: getattr(record, name) for name in Record.__annotations__}
    read = plain_note if record.kind in _OURS else plain_value
    return {**facts, "args": read(record.args), "payload": read(record.payload), "hash": record.hash.hex()}
