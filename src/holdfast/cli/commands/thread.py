"""`holdfast thread`"""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem

from holdfast.base.clock import as_time, now_us
from holdfast.cli.candidates import candidates
from holdfast.cli.failure import NOT_FOUND, OK, Failure
from holdfast.cli.lists import line_of
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import with_store
from holdfast.cli.text import clean, paint, to_json
from holdfast.history.threads import everything
from holdfast.history.values import plain_value
from holdfast.history.words import clock_time, count
from holdfast.model import Message, RunId, ThreadId
from holdfast.store.contract import Store


def _complete_thread(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    setup = ctx.find_root().obj or Setup()

    async def look(store: Store) -> list[CompletionItem]:
        found = await store.threads(id_prefix=incomplete, limit=30)
        return candidates((row.id, count(row.last, "message")) for row in found)

    try:
        return with_store(setup, look)
    except Exception:  # the shell has no place for errors while the user types
        return []


@command("thread")
@click.argument("thread", metavar="ID", shell_complete=_complete_thread)
@click.option("--since", type=Number(min=0), default=0, metavar="NUMBER", help="Only messages behind this one.")
def thread_command(setup: Setup, thread: str, since: int) -> int:
    """Print what was said in a thread.

    All of it in order, summaries too, with its numbers. Piped, lines of: number, time, author, up to where a summary
    goes, message as JSON. With --json each message is an object. Exit code 3: nothing was said in such a thread.

    \b
    holdfast thread chat-7
    """

    async def read(store: Store) -> list[Message]:
        is_old = any(step.name == "threads" and step.applied_at is None for step in await store.schema())
        if is_old or await store.thread(ThreadId(thread)) is None:
            row = await store.run(RunId(thread))
            hint = f" That is a run; its thread is {row.thread_id!r}." if row and row.thread_id != thread else ""
            raise Failure(f"Nothing was said in thread {thread!r} in {store.url}.{hint}", NOT_FOUND)
        return [message async for message in everything(store, ThreadId(thread)) if message.number > since]

    messages = with_store(setup, read)
    if setup.is_json:
        print(to_json({"thread": thread, "items": [_facts(message) for message in messages]}))
        return OK
    now = as_time(now_us())
    for message in messages:
        said = plain_value(message.body)
        if not setup.is_table:
            at = as_time(message.at).isoformat(timespec="milliseconds")
            print(line_of((message.number, at, message.author, message.covers, to_json(said))))
            continue
        covers = f"  sums up 1 to {message.covers}" if message.covers is not None else ""
        head = f"{message.number}  {clock_time(as_time(message.at), now=now)}  {message.author}{covers}"
        print(paint(clean(head, one_line=True), "dim", setup.has_color(sys.stdout)))
        print(clean(said if isinstance(said, str) else to_json(said, indent=2)))
    return OK


def _facts(message: Message) -> dict[str, object]:
    return {
        "number": message.number,
        "at": as_time(message.at).isoformat(),
        "author": message.author,
        "covers": message.covers,
        "message": plain_value(message.body),
    }
