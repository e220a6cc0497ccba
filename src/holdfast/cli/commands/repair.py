"""`holdfast repair`"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from holdfast.base.config import is_server
from holdfast.cli.acting import actor_options
from holdfast.cli.failure import CONFLICT, INTEGRITY, OK, USAGE, Failure
from holdfast.cli.lists import Listed, show_list
from holdfast.cli.progress import Bar
from holdfast.cli.setup import Setup, command, warn_of_password
from holdfast.cli.stores import complete_run, existing_store, opened
from holdfast.control.upkeep.copying import Copies
from holdfast.control.upkeep.repairing import Repairs
from holdfast.control.upkeep.transfers import Outcome, Transfer
from holdfast.errors import RunNotFound
from holdfast.history.words import count
from holdfast.model import Actor, RunFilter, RunRow
from holdfast.store.contract import Store
from holdfast.store.runs import every_run

_MARKS = {Outcome.repaired: ("✔", "green"), Outcome.there: ("✔", "dim"), Outcome.refused: ("▲", "yellow")}
_CODES = {
    Outcome.refused: CONFLICT,
    Outcome.conflict: CONFLICT,
    Outcome.saved: INTEGRITY,
    Outcome.damaged: INTEGRITY,
}


@command("repair", here="takes damaged runs from store to store")
@click.argument("to_url", metavar="TO")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@actor_options
def repair_command(setup: Setup, to_url: str, runs: tuple[str, ...], note: str, by: Actor) -> int:
    """Sign runs anew that were changed outside Holdfast, in another store.

    The store is only read; TO (a new file, or another store) gets what can be read of the damaged runs: of RUN, or of
    all. A run that has lost nothing gets hashes that fit what it says now, and a note of who did that and what did not
    fit. It is paused there until somebody resumes it; frozen, if its own store may still execute it or has its family.
    A run that has lost something stays quarantined. Sound runs are left where they are. Both stores may be PostgreSQL.
    Exit code 5: something was refused; 6: something is lost. Piped, lines of: run, status, what happened, agent,
    detail.

    \b
    holdfast repair repaired.db half --note "7 is right"
    """
    warn_of_password("TO", to_url)
    if is_server(to_url):
        raise Failure("Runs are repaired from store to store; a server is none.", USAGE)

    async def work() -> list[Transfer]:
        async with existing_store(setup, read_only=True) as source:
            wanted = [await _row(source, given) for given in runs] or [row async for row in every_run(source)]
            async with opened(to_url) as target:
                await Copies(source, target).check_two()
                return await _repaired(Repairs(source, target, by=by, note=note), wanted, is_named=bool(runs))

    transfers = asyncio.run(work())
    show_list(
        setup,
        [_listed(each) for each in transfers],
        head=("WHAT HAPPENED", "RUN", "AGENT", "STATUS", ""),
        flexible=4,
        nothing="No run is damaged.",
        footer=count(len(transfers), "run"),
    )
    return max((_CODES[each.outcome] for each in transfers if each.outcome in _CODES), default=OK)


async def _row(store: Store, run_id: str) -> RunRow:
    """By its whole id: what it was is not known well enough to guess."""
    found = [row for row in await store.runs(RunFilter(id_prefix=run_id, limit=200)) if row.id == run_id]
    if not found:
        raise RunNotFound(f"There is no run {run_id!r} in {store.url}. `holdfast verify` tells which are damaged.")
    return found[0]


async def _repaired(repairs: Repairs, rows: Sequence[RunRow], *, is_named: bool) -> list[Transfer]:
    bar = Bar(len(rows), "run")
    done: list[Transfer] = []
    try:
        for number, row in enumerate(rows):
            bar(number)
            became = await repairs.repair(row)
            if became is None and is_named:
                became = Transfer(row.id, row.agent, row.status, Outcome.refused, "it is not damaged; see copy")
            done += [became] if became is not None else []
    finally:
        bar.wipe()
    return done


def _listed(each: Transfer) -> Listed:
    mark, style = _MARKS.get(each.outcome, ("⛔", "red"))
    line = (each.run_id, each.status.value, each.outcome.value, each.agent, each.detail)
    cells = (f"{mark} {each.outcome.value}", each.run_id, each.agent, each.status.value, each.detail)
    facts = dict(zip(("id", "status", "outcome", "agent", "detail"), line, strict=True))
    return Listed(facts, line, cells, style)
