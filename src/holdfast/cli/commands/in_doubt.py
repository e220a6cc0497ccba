"""`holdfast in-doubt`"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass

from holdfast.base.clock import as_time, now_us
from holdfast.base.hints import resume_hint
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import clean, folded, paint, shorten, to_json, wrapped
from holdfast.history.doubts import DoubtInfo, all_doubts, doubts_of, ways_to_settle
from holdfast.history.lookup import find
from holdfast.history.overview import doubt_facts
from holdfast.history.words import duration
from holdfast.journal.pages import source_of
from holdfast.model import RunRow
from holdfast.store.contract import Store


@dataclass(frozen=True, slots=True)
class Doubt:
    """An effect in doubt and the run it belongs to."""

    run: RunRow
    info: DoubtInfo


@command("in-doubt")
@run_argument(required=False)
def in_doubt_command(setup: Setup, run: str | None) -> int:
    """List effects that may or may not have happened.

    Piped, lines of: run, call, effect, attempt, since, cause, idempotency key, arguments.
    """

    async def read(store: Store) -> tuple[list[Doubt], str]:
        return await find_doubts(store, run)

    doubts, more = with_store(setup, read)
    if setup.is_json:
        print(to_json({"items": [_as_dict(doubt) for doubt in doubts]}))
        return 0
    for doubt in doubts:
        if setup.is_table:
            _print_block(doubt, setup.has_color(sys.stdout))
        else:
            print(_line(doubt))
    if not doubts:
        print(folded(clean(f"Nothing is in doubt.{more}"), sys.stderr), file=sys.stderr)
    return 0


async def find_doubts(store: Store, given: str | None) -> tuple[list[Doubt], str]:
    """The effects in doubt of one run or of all; and a hint where there are none."""
    if given is None:
        return [Doubt(*found) for found in await all_doubts(store)], ""
    hint = ""
    row = await find(store, given)
    if row.owner is not None and row.owner in await store.dead_workers():
        source = await source_of(store, row)
        hint = f" But run {row.id} was cut off: `{resume_hint(row.id, source)}` finds out what it left."
    return [Doubt(row, info) for info in await doubts_of(store, row.id)], hint


def _as_dict(doubt: Doubt) -> dict[str, object]:
    since = as_time(doubt.info.since).isoformat()
    return {"run": doubt.run.id, "agent": doubt.run.agent, **doubt_facts(doubt.info), "since": since}


def _line(doubt: Doubt) -> str:
    info = doubt.info
    since = as_time(info.since).isoformat(timespec="milliseconds")
    parts = (doubt.run.id, info.key, info.name, info.attempt, since, info.cause, info.idempotency_key, info.args or "")
    return "\t".join(clean(str(part), one_line=True) for part in parts)


def _print_block(doubt: Doubt, has_color: bool) -> None:
    info, run = doubt.info, doubt.run
    columns = shutil.get_terminal_size().columns - 14
    since = as_time(info.since).astimezone()
    age = duration(max(0.0, (now_us() - info.since) / 1e6))
    title = f"◈ {clean(run.id, one_line=True)}  {clean(info.key, one_line=True)}"
    print(f"{paint(title, 'magenta', has_color)}  {clean(run.agent, one_line=True)}, attempt {info.attempt}")
    print(f"  since      {since:%Y-%m-%d %H:%M:%S} ({age} ago)")
    print(wrapped(f"  cause      {clean(info.cause, one_line=True)}", columns + 13, indent=13))
    print(f"  arguments  {shorten(clean(info.args or '', one_line=True), columns)}")
    print(f"  key        {info.idempotency_key}")
    for label, step in zip(("settle", "", ""), ways_to_settle(run.id, info.key), strict=True):
        print(f"  {label:<9}  {step}")
    print()
