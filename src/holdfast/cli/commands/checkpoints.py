"""`holdfast checkpoints`, `holdfast state`, `holdfast diff`"""

from __future__ import annotations

import json
import sys

import click

from holdfast.cli.failure import OK
from holdfast.cli.lists import Listed, ago, show_list, stamp
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import clean, paint, to_json
from holdfast.history.checkpoints import CheckpointInfo, StateChange, checkpoints_of, difference_of, state_of
from holdfast.history.lookup import find
from holdfast.history.words import count
from holdfast.store.contract import Store

_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@command("checkpoints")
@run_argument()
def checkpoints_command(setup: Setup, run: str) -> int:
    """List the turns of a run, and the sizes of their states.

    Piped, lines of: turn, seq, when it began, size in bytes, unread mail.
    """

    async def read(store: Store) -> list[CheckpointInfo]:
        return await checkpoints_of(store, (await find(store, run)).id)

    found = with_store(setup, read)
    show_list(
        setup,
        [_listed(each) for each in found],
        head=("TURN", "BEGAN", "STATE", "SEQ", "UNREAD"),
        flexible=1,
        nothing=f"Run {run} has no turns: its agent has no loop of hf.turns(), or has not come to it.",
        footer=count(len(found), "turn"),
    )
    return OK


def _listed(info: CheckpointInfo) -> Listed:
    line = (info.turn, info.seq, stamp(info.at), info.size, info.unread)
    cells = (f"@{info.turn}", f"{ago(info.at)} ago", f"{info.size:,} B", str(info.seq), str(info.unread or ""))
    return Listed(info.as_dict(), line, cells)


@command("state")
@run_argument()
@click.option("--turn", type=int, help="The turn that began with it. [default: the last one]")
def state_command(setup: Setup, run: str, turn: int | None) -> int:
    """Print the state that a turn of a run began with.

    It is JSON, indented unless --json is given.
    """

    async def read(store: Store) -> object:
        return await state_of(store, (await find(store, run)).id, turn)

    print(to_json(with_store(setup, read), indent=None if setup.is_json else 2))
    return OK


@command("diff")
@run_argument()
@click.argument("a", type=int, metavar="TURN")
@click.argument("b", type=int, metavar="TURN")
def diff_command(setup: Setup, run: str, a: int, b: int) -> int:
    """Show what differs between the states of two turns of a run.

    Piped, lines of: added|removed|changed, path, before, after; values as JSON.
    """

    async def read(store: Store) -> list[StateChange]:
        return await difference_of(store, (await find(store, run)).id, turns=(a, b))

    found = with_store(setup, read)
    if setup.is_json:
        print(to_json({"items": [each.as_dict() for each in found]}))
        return OK
    has_color = setup.has_color(sys.stdout)
    for each in found:
        before, after = _shown(each.before), _shown(each.after)
        if not setup.is_table:
            print("\t".join((each.kind, clean(each.path, one_line=True), before, after)))
            continue
        value = f"{before} → {after}" if each.kind == "changed" else after if each.kind == "added" else before
        print(paint(clean(f"{_SIGNS[each.kind]} {each.path}: {value}", one_line=True), _STYLES[each.kind], has_color))
    if not found:
        print("The states are the same.", file=sys.stderr)
    return OK


def _shown(value: object) -> str:
    return clean(json.dumps(value, ensure_ascii=False), one_line=True)
