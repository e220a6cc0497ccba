"""`holdfast copy`"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence

import click

from holdfast.base.config import is_server, store_url
from holdfast.cli.clients import complete_agent
from holdfast.cli.failure import CONFLICT, INTEGRITY, OK, USAGE, Failure
from holdfast.cli.lists import Listed, line_of, show_list
from holdfast.cli.progress import Bar
from holdfast.cli.setup import Setup, command, status_option, warn_of_password
from holdfast.cli.stores import check_exists, complete_run, opened
from holdfast.cli.text import clean, to_json
from holdfast.control.upkeep.copying import Copies
from holdfast.control.upkeep.definitions import copy_definitions
from holdfast.control.upkeep.moving import Mover
from holdfast.control.upkeep.transfers import Outcome, Transfer
from holdfast.history.lookup import find
from holdfast.history.words import count
from holdfast.model import FINAL, RunRow, Status

_MARKS = {
    Outcome.copied: ("✔", "green"),
    Outcome.moved: ("✔", "green"),
    Outcome.there: ("✔", "dim"),
    Outcome.refused: ("▲", "yellow"),
    Outcome.conflict: ("✖", "red"),
    Outcome.damaged: ("⛔", "red"),
}
_CODES = {Outcome.refused: CONFLICT, Outcome.conflict: CONFLICT, Outcome.damaged: INTEGRITY}
_AT_ONCE = 100
_EXPLAINED = 5  #: a table has no room for why a run was refused


@command("copy", here="takes runs from store to store")
@click.argument("from_url", metavar="FROM")
@click.argument("to_url", metavar="TO")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@click.option("--agent", metavar="NAME", shell_complete=complete_agent, help="All runs of an agent.")
@status_option(Status, "All runs that stand so")
@click.option("--move", is_flag=True, help="Take the runs away from FROM; the only way for unfinished ones.")
@click.option("--seize", is_flag=True, help="With --move: also runs that a live worker has. It can write nothing more.")
@click.option("--frozen", is_flag=True, help="Copy runs as they are now, to be looked at and forked, never executed.")
@click.option(
    "--definitions",
    is_flag=True,
    help="Also queues, rules of retention, what extensions keep, and (paused) schedules and triggers.",
)
def copy_command(
    setup: Setup,
    from_url: str,
    to_url: str,
    runs: tuple[str, ...],
    agent: str | None,
    statuses: tuple[str, ...],
    move: bool,
    seize: bool,
    frozen: bool,
    definitions: bool,
) -> int:
    """Copy runs from one store to another, or move them.

    FROM and TO are paths, sqlite:///PATH or postgresql://… . Runs come verbatim, with ids, hashes, messages and
    questions, and are compared with the original before it is said that they are there. Without RUN and filters, all
    that have ended (with --move: all). An unfinished run is moved, never copied: in two stores it would run twice. It
    goes on in TO as it stood, with its family. Cut off, the same command goes on. With --frozen it is copied all the
    same, and nobody can execute it in TO; FROM may be a run of the store that --db names then. Exit code 5: something
    was refused, or TO has another run with this id; 6: stored data is damaged. Piped, lines of: run, status, what
    happened, agent, detail.

    \b
    holdfast copy old.db postgresql://me@db/agents r7 --move
    holdfast copy old.db new.db --agent letter --status done
    holdfast copy issue-7 for-ann.db --frozen
    """
    if runs and (agent or statuses):
        raise Failure("Name the runs, or give --agent or --status; not both.", USAGE)
    if frozen and move:
        raise Failure("--move and --frozen are two ways to take a run; give one of them.", USAGE)
    if frozen and not runs and not _is_store(from_url):
        runs, from_url = (from_url,), store_url(setup.db)
    if seize and not move:
        raise Failure("--seize is for --move: a copy takes nothing from anybody.", USAGE)
    warn_of_password("FROM or TO", from_url, to_url)
    if is_server(from_url) or is_server(to_url):
        raise Failure("Runs are copied from store to store; a server is none.", USAGE)
    check_exists(Setup(db=from_url))
    named = frozenset(map(Status, statuses)) or None

    async def work() -> tuple[list[Transfer], list[tuple[str, str, Outcome]]]:
        async with opened(from_url, read_only=not move) as from_, opened(to_url, read_only=False) as to:
            copies, moves = Copies(from_, to), Mover(from_, to, seize=seize) if move else None
            if move:
                await copies.check_two()
            wanted = [await find(from_, given) for given in runs]
            if not runs and not (definitions and not (agent or named)):
                every = named or (None if move or frozen else FINAL)
                wanted = [row async for row in copies.chosen(agent=agent, statuses=every)]
            made = await copy_definitions(from_, to) if definitions else []
            return await _carried(copies, wanted, moves=moves, frozen=frozen), made

    transfers, made = asyncio.run(work())
    _show(setup, transfers, made)
    codes = [_CODES[each.outcome] for each in transfers if each.outcome in _CODES]
    codes += [CONFLICT for _, _, outcome in made if outcome is Outcome.conflict]
    return max(codes, default=OK)


def _is_store(given: str) -> bool:
    return "://" in given or os.path.exists(given)


async def _carried(copies: Copies, rows: Sequence[RunRow], *, moves: Mover | None, frozen: bool) -> list[Transfer]:
    bar = Bar(len(rows), "run")
    done: dict[str, Transfer] = {}
    try:
        for start in range(0, len(rows), _AT_ONCE if moves is None else 1):
            if moves is None:
                done |= {each.run_id: each for each in await copies.copy(rows[start : start + _AT_ONCE], frozen=frozen)}
            elif rows[start].id not in done:  # else it came with its family
                done |= {each.run_id: each for each in await moves.move(rows[start])}
            bar(len(done))
    finally:
        bar.wipe()
    return list(done.values())


def _show(setup: Setup, transfers: Sequence[Transfer], made: Sequence[tuple[str, str, Outcome]]) -> None:
    if setup.is_json:
        print(
            to_json(
                {
                    "items": [_facts(each) for each in transfers],
                    "definitions": [
                        {"kind": kind, "name": name, "outcome": outcome.value} for kind, name, outcome in made
                    ],
                }
            )
        )
        return
    told = Counter(each.outcome.value for each in transfers)
    show_list(
        setup,
        [_listed(each) for each in transfers],
        head=("WHAT HAPPENED", "RUN", "AGENT", "STATUS", ""),
        flexible=4,
        nothing="No run to copy." if not made else "",
        footer=f"{count(len(transfers), 'run')}: " + " · ".join(f"{n} {text}" for text, n in told.most_common()),
    )
    if setup.is_table:
        for detail in list(dict.fromkeys(each.detail for each in transfers if each.detail))[:_EXPLAINED]:
            runs = [each.run_id for each in transfers if each.detail == detail]
            more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
            print(clean(f"{runs[0]}{more}: {detail}.", one_line=True), file=sys.stderr)
    for kind, name, outcome in made:
        if setup.is_table:
            print(clean(f"  {_MARKS[outcome][0]} {kind} {name}: {outcome.value}", one_line=True))
        else:
            print(line_of((f"{kind}:{name}", "", outcome.value, "", "")))


def _facts(each: Transfer) -> dict[str, str]:
    return {
        "id": each.run_id,
        "agent": each.agent,
        "status": each.status.value,
        "outcome": each.outcome.value,
        "detail": each.detail,
    }


def _listed(each: Transfer) -> Listed:
    mark, style = _MARKS[each.outcome]
    line = (each.run_id, each.status.value, each.outcome.value, each.agent, each.detail)
    cells = (f"{mark} {each.outcome.value}", each.run_id, each.agent, each.status.value, each.detail)
    return Listed(_facts(each), line, cells, style)
