"""A run told in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from holdfast.base.data import data
from holdfast.history.facts import Facts
from holdfast.history.info import RunInfo
from holdfast.history.receipts import Receipt, unrecorded_text
from holdfast.history.timeline import TimelineItem
from holdfast.history.waiting import now_of
from holdfast.history.words import amount, count, duration, word_of


@data
class Chapter(Facts):
    """A part of the story: its beginning, calls that went well, one thing that happened, or where it stands."""

    kind: str  #: started, calls, now, or the kind of the item that it tells of
    at: datetime
    seqs: tuple[int, ...]  #: of the items that it tells of
    text: str  #: one sentence or several


def story_of(info: RunInfo, timeline: Sequence[TimelineItem], receipts: Sequence[Receipt]) -> Iterator[Chapter]:
    """One chapter after the other: calls in between, an outage, what was in doubt, the end."""
    left = iter([receipt for receipt in receipts if not receipt.woken])
    calls: list[TimelineItem] = []
    began = f"{info.agent} ({info.id}) started on {info.created_at.astimezone():%Y-%m-%d at %H:%M:%S}."
    yield Chapter("started", info.created_at, (), began)
    for item in timeline:
        if item.kind in ("step", "effect", "child") and item.status == "done" and "in doubt" not in item.detail:
            calls.append(item)
            continue
        sentence = _sentence(item, left)
        if sentence:
            yield from _done(calls)
            calls = []
            yield Chapter(item.kind, item.at, (item.seq,), sentence)
    yield from _done(calls)
    if not info.status.is_final:
        state = "cut off: its process died, and any worker may go on with it" if info.is_lost else word_of(info.status)
        now = now_of(info)
        told = f"Now it is {state}{f' ({now})' if now and not info.is_lost else ''}."
        yield Chapter("now", info.updated_at, (), told)


def _done(calls: Sequence[TimelineItem]) -> Iterator[Chapter]:
    if calls:
        took = duration(sum(call.took_s or 0 for call in calls))
        names = list(dict.fromkeys(call.name for call in calls))
        shown = ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
        told = f"{count(len(calls), 'call')} succeeded in {took}: {shown}."
        yield Chapter("calls", calls[-1].at, tuple(call.seq for call in calls), told)


def _waited(item: TimelineItem) -> str:
    what = {"ask": "", "receive": f"signal {item.name.partition('.')[2]}", "sleep": "the time came"}[item.kind]
    return f"{what} {item.detail}".strip()


def _sentence(item: TimelineItem, receipts: Iterator[Receipt]) -> str:
    at = f"{item.at.astimezone():%H:%M:%S}"
    what = item.key or item.name
    detail = f": {item.detail}" if item.detail else ""
    match item.kind, item.status:
        case (("outage" | "resumed"), _):
            receipt = next(receipts, None)
            began = "Its process was lost" if item.kind == "outage" else "It had been given back"
            saved = f", worth {duration(receipt.saved_s)} {amount(receipt.saved_cost)}".rstrip() if receipt else ""
            silent = f" In between, {told}." if receipt and (told := unrecorded_text(receipt.unrecorded)) else ""
            kept = f" It took {count(receipt.replayed, 'result')} from the journal{saved}." if receipt else ""
            return f"{began}; at {at}, {duration(item.took_s or 0)} later, it went on.{silent}{kept}"
        case "retried", _:
            return f"At {at} it was opened again, {item.detail}."
        case "finished", status:
            return f"At {at} it ended: {status}{detail}."
        case (("step" | "effect" | "child"), ("done" | "failed" | "cancelled" | "not stored") as status):
            return f"{what} ended at {at}: {status}{', ' if item.detail else ''}{item.detail}."
        case (("step" | "effect" | "child"), status):
            return f"{what}, begun at {at}, is {status}{detail}."
        case "timeout", "expired":
            return f"A timeout expired at {at}."
        case "note", ("paused" | "resumed" | "told to stop"):
            return f"At {at} it was {item.status}{f' {item.detail}' if item.detail else ''}."
        case (("ask" | "receive" | "sleep"), "waiting"):
            what = item.detail if item.kind == "sleep" else _waited(item)
            return f"At {at} it began to wait: {what}."
        case (("ask" | "receive" | "sleep"), status):
            how = {"ask": "it had an answer", "receive": "it received", "sleep": "it woke up"}[item.kind]
            how = how if status == "done" else f"it waited no longer ({status})"
            return f"At {at}, after {duration(item.took_s or 0)}, {how}: {_waited(item)}."
        case "interrupt", _:
            said = "it replied" if item.name.endswith(".end") else "it was interrupted"
            return f"At {at} {said} {item.detail}."
        case "note", _:
            return f"Note at {at} on {what}{detail}."
        case _:
            return ""
