"""`holdfast show`"""

from __future__ import annotations

import shutil
import sys

import click

from holdfast.cli.failure import INTEGRITY, OK
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import LOST, SHAPES, clean, folded, pad, paint, shorten, to_json, wrapped
from holdfast.cli.timeline import painted, timeline_lines
from holdfast.history.doubts import ways_to_settle
from holdfast.history.info import info_of
from holdfast.history.lookup import find
from holdfast.history.overview import Overview, Stretch, gone_text, overview_of, record_facts, run_facts
from holdfast.history.pages import timeline_pages
from holdfast.history.receipts import Receipt, saved_text, unrecorded_text
from holdfast.history.story import story_of
from holdfast.history.timeline import TimelineItem
from holdfast.history.values import plain_text
from holdfast.history.waiting import next_steps, now_of
from holdfast.history.words import amount, count
from holdfast.journal.blocks import told
from holdfast.journal.pages import record_pages
from holdfast.journal.verification import Verification, verify
from holdfast.model import Record, Status, reasons
from holdfast.store.contract import Store

_LAST = 1000  #: items that a terminal gets of a run that has more


@command("show")
@run_argument()
@click.option("--journal", is_flag=True, help="The records as they are stored.")
@click.option("--story", is_flag=True, help="The same in sentences.")
@click.option("--after", metavar="SEQ", type=Number(0), default=0, help="Only what comes behind this record.")
@click.option("--limit", metavar="N", type=Number(1), help="At most so many.")
def show_command(setup: Setup, run: str, journal: bool, story: bool, after: int, limit: int | None) -> int:
    """Show what happened in a run.

    Calls in the order they ended, outages, what is in doubt, and what each resume saved. The journal is verified;
    exit code 6 says that it is damaged. Of a long run a terminal gets the end; --after and --limit show any part of it.
    Piped, lines of: time, call, kind, status, seconds, attempt, detail.
    """
    if journal:
        return with_store(setup, lambda store: _print_journal(setup, store, run, after=after, limit=limit))
    if not (story or setup.is_json or setup.is_table):
        return with_store(setup, lambda store: _print_lines(store, run, after=after, limit=limit))
    stretch = Stretch(after, limit, _LAST if setup.is_table and not story else None)

    async def read(store: Store) -> Overview:
        return await overview_of(store, (await find(store, run)).id, stretch)

    shown = with_store(setup, read)
    if shown.gone and not setup.is_json:
        if setup.is_table:
            print(_header(shown, setup.has_color(sys.stdout)))
        print(clean(shown.gone, one_line=True), file=sys.stderr)
        return OK
    if setup.is_json:
        print(to_json(shown.as_dict()))
    elif story:
        chapters = story_of(shown.info, shown.timeline, shown.receipts)
        print("\n".join(clean(chapter.text) for chapter in chapters))
    else:
        _print_table(shown, setup.has_color(sys.stdout), shutil.get_terminal_size().columns)
    return _verified(shown.verification)


def _verified(verification: Verification) -> int:
    if verification.is_ok:
        return OK
    print(f"✖ {clean(str(verification.problem))}", file=sys.stderr)
    return INTEGRITY


# for a pipe


async def _print_lines(store: Store, run: str, *, after: int, limit: int | None) -> int:
    """Page by page, however long it is."""
    row = await find(store, run)
    verification = await verify(store, row.id)
    if gone := gone_text(row):
        print(clean(gone, one_line=True), file=sys.stderr)
        return OK
    left = row.head_seq * 2 if limit is None else limit
    asked = await store.questions(run_id=row.id, only_open=False)
    async for items in timeline_pages(store, row, asked=asked):
        for item in [item for item in items if item.seq > after][:left]:
            print(_line(item))
            left -= 1
        if left <= 0:
            break
    if row.status is Status.blocked:
        print(folded("\n".join(map(clean, told(row.id, row.reason))), sys.stderr), file=sys.stderr)
    return _verified(verification)


def _line(item: TimelineItem) -> str:
    took = "" if item.took_s is None else f"{item.took_s:.6f}"
    at = item.at.isoformat(timespec="milliseconds")
    parts = (at, item.key or item.name, item.kind, item.status, took, item.attempt, item.detail)
    return "\t".join(clean(str(part), one_line=True) for part in parts)


# for a terminal


def _print_table(shown: Overview, has_color: bool, columns: int) -> None:
    print(_header(shown, has_color))
    for label, text in (("input", shown.given), ("result", shown.result)):
        if text and text != "{}":
            value = clean(plain_text(text), one_line=True)
            print(f"{paint(pad(label, 8), 'dim', has_color)}{shorten(value, columns - 9)}")
    print()
    if shown.left_out:
        print(paint(f"… {shown.left_out:,} before; --after SEQ and --limit N show them", "dim", has_color))
    for line in timeline_lines(shown.timeline, columns):
        print(painted(line, has_color))
    for lines in (_doubt_lines(shown), _receipt_lines(shown.receipts)):
        if lines:
            print()
        for text in lines:
            print(wrapped(text, columns - 1, indent=2) if "holdfast" not in text else text)
    for text in _next_lines(shown):
        print(paint(folded(text, sys.stdout), "bold", has_color))


def _header(shown: Overview, has_color: bool) -> str:
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


def _doubt_lines(shown: Overview) -> list[str]:
    lines = []
    for doubt in shown.doubts:
        lines.append(clean(f"◈ {doubt.key} may or may not have happened: {doubt.cause}", one_line=True))
        lines += [f"  {step}" for step in ways_to_settle(shown.info.id, doubt.key)]
    return lines


def _receipt_lines(receipts: list[Receipt]) -> list[str]:
    lines = []
    for number, receipt in enumerate(receipts, start=1):
        saved, changed = saved_text(receipt), len(receipt.gap)
        parts = [
            f"resume {number}: {count(receipt.replayed, 'call')} from the journal, {receipt.executed} executed",
            f"saved {saved}" if saved else "",
            unrecorded_text(receipt.unrecorded),
            "code changed" if receipt.code_changed else "",
            f"{count(changed, 'thing')} changed outside (holdfast receipt RUN)" if changed else "",
        ]
        lines.append("↺ " + ", ".join(part for part in parts if part))
    return lines


def _next_lines(shown: Overview) -> list[str]:
    info = shown.info
    if info.status is Status.blocked and not info.is_lost:
        return ["", *map(clean, told(info.id, reasons.of(info.reason or {})))]
    steps = next_steps(info, shown.source) if info.status is not Status.in_doubt or info.is_lost else []
    return ["", *(f"Have it go on with: {step}" for step in steps)] if steps else []


# the journal


async def _print_journal(setup: Setup, store: Store, run: str, *, after: int, limit: int | None) -> int:
    """Page by page, whatever there is of it."""
    row = await find(store, run)
    verification = await verify(store, row.id)
    if (gone := gone_text(row)) and not setup.is_json:
        print(clean(gone, one_line=True), file=sys.stderr)
        return OK
    left = row.head_seq if limit is None else limit
    columns = shutil.get_terminal_size().columns - 1 if setup.is_table else None
    if setup.is_json:
        info = info_of(row, is_lost=row.owner is not None and row.owner in await store.dead_workers())
        print(f'{{"run": {to_json(run_facts(info))}, "records": [', end="")
    mark = ""
    async for page in record_pages(store, row):
        wanted = [record for record in page if record.seq > after][:left]
        left -= len(wanted)
        for record in wanted:
            if setup.is_json:
                print(mark, to_json(record_facts(record)), sep="", end="")
                mark = ", "
            else:
                print(_record_line(record, columns))
    if setup.is_json:
        print(f'], "verification": {to_json(verification.as_dict())}}}')
    return _verified(verification)


def _record_line(r: Record, columns: int | None) -> str:
    parts = (r.seq, r.at, f"e{r.epoch}", r.kind, r.key, r.name, r.attempt, r.took, r.args or "", r.payload or "")
    text = "\t".join(clean(str(part), one_line=True) for part in parts)
    return text if columns is None else shorten(text.expandtabs(), columns)
