"""`holdfast stream`"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

import click
from click.shell_completion import CompletionItem

from holdfast.cli.candidates import candidates
from holdfast.cli.failure import INTERRUPTED, NOT_FOUND, OK, Failure
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import existing_store, run_argument, with_store
from holdfast.cli.text import clean, to_json
from holdfast.history.lookup import find
from holdfast.history.streams import events, streams_of
from holdfast.history.words import count
from holdfast.model import RunRow, StreamEvent, StreamEventKind
from holdfast.store.contract import Store

_DEFAULT = "output"
_SOON_S = 0.2


def _complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    setup = ctx.find_root().obj or Setup()

    async def look(store: Store) -> list[CompletionItem]:
        found = streams_of(await find(store, ctx.params["run"]))
        return candidates((name, count(last, "event")) for name, last in found.items() if name.startswith(incomplete))

    try:
        return with_store(setup, look)
    except Exception:  # the shell has no place for errors while the user types
        return []


@command("stream")
@run_argument()
@click.argument("name", required=False, shell_complete=_complete_name)
@click.option("--follow", is_flag=True, help="Go on until the run ends.")
@click.option(
    "--offset",
    type=Number(min=0),
    metavar="NUMBER",
    help="Begin behind this event; 0 is the first one. [default: at the last reset]",
)
def stream_command(setup: Setup, run: str, name: str | None, follow: bool, offset: int | None) -> int:
    """Print what bodies of a run write with `hf.stream`.

    NAME is a stream of the run; if none is given, `output` or the only one that it has. The text goes to stdout as it
    was written; that a call was cut off and its text does not count is said on stderr. With --json each event is a
    line: number, kind, text, key, attempt, at, reason. Exit code 3: the run has no such stream.

    \b
    holdfast stream issue-7 --follow
    """

    async def go() -> None:
        async with existing_store(setup) as store:
            row = await find(store, run)
            while (wanted := _chosen(row, name)) is None and follow and not row.status.is_final:
                await asyncio.sleep(_SOON_S)
                row = await find(store, row.id)
            if wanted is None:
                known = ", ".join(sorted(streams_of(row)))
                there = f"It has {known}." if known else "It has none: none of its bodies wrote yet."
                raise Failure(f"Run {row.id} has no stream {name or _DEFAULT!r}. {there}", NOT_FOUND)
            async for event in events(store, row.id, wanted, offset=offset, live=follow):
                _print(setup, event)

    try:
        asyncio.run(go())
    except KeyboardInterrupt:
        return INTERRUPTED
    if not setup.is_json and sys.stdout.isatty():
        print()
    return OK


def _chosen(row: RunRow, name: str | None) -> str | None:
    """The stream that is meant, once the run has it; the only one, if none is named."""
    known = streams_of(row)
    if name is None and len(known) > 1 and _DEFAULT not in known:
        raise Failure(f"Run {row.id} has no stream {_DEFAULT!r}. It has {', '.join(sorted(known))}.", NOT_FOUND)
    wanted = name or (next(iter(known)) if len(known) == 1 else _DEFAULT)
    return wanted if wanted in known else None


def _print(setup: Setup, event: StreamEvent) -> None:
    if setup.is_json:
        print(to_json({**asdict(event), "at": event.at.isoformat()}), flush=True)
    elif event.kind is StreamEventKind.text:
        print(clean(event.text), end="", flush=True)
    elif event.kind is StreamEventKind.reset:
        print(f"\n[{event.key} was cut off ({event.reason}): its text so far does not count]", file=sys.stderr)
