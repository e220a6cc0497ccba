"""`holdfast check`"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from holdfast.cli.clients import complete_agent
from holdfast.cli.failure import CONFLICT, INTEGRITY, OK, USAGE, Failure
from holdfast.cli.lists import line_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.source import known_agents
from holdfast.cli.stores import check_exists, with_store
from holdfast.cli.text import clean, folded, paint, to_json
from holdfast.history.words import count
from holdfast.store.contract import Store
from holdfast.worker.checking import forecasts
from holdfast.worker.rehearsing import Forecast, Prospect

_SHOWN = 3  #: runs that are named, of those with the same problem
_STYLES = {
    Prospect.blocks: "red",
    Prospect.may_block: "yellow",
    Prospect.fails: "red",
    Prospect.damaged: "red",
    Prospect.unclear: "yellow",
}


@command("check")
@click.argument("sources", metavar="FILE...", nargs=-1)
@click.option("--app", metavar="FILE,…", help="The files with the agents. [env: HOLDFAST_APP]")
@click.option("--agent", metavar="NAME", shell_complete=complete_agent, help="Only runs of this agent.")
def check_command(setup: Setup, sources: tuple[str, ...], app: str | None, agent: str | None) -> int:
    """Tell which unfinished runs go on with the code as it is now.

    Each run is replayed against FILE, up to where its journal ends. No step or effect is executed, and nothing is
    written. Says nothing if all of them go on. Exit code 5: a run would, or may, block or fail; 6: one is damaged. For
    CI, before a deploy. Piped, lines of: run, what would become of it, agent, status, call, file:line, detail.

    \b
    holdfast check agents.py --db postgresql://me@db/agents
    """
    check_exists(setup)
    unknown: Counter[str] = Counter()
    with _silent():
        agents, _ = known_agents(sources, app)
        if not agents:
            raise Failure("Which code? Give the files with the agents, or --app, or HOLDFAST_APP.", USAGE)
        if agent is not None and agent not in agents:
            raise Failure(f"There is no agent {agent!r} in these files; they have {', '.join(agents)}.", USAGE)

        async def look(store: Store) -> list[Forecast]:
            return [each async for each in forecasts(store, agents, agent=agent, unknown=unknown)]

        found = with_store(setup, look)
    if setup.is_json:
        problems = sum(each.is_problem for each in found)
        facts = {"items": [each.as_dict() for each in found], "unknown": dict(unknown), "is_ok": not problems}
        print(to_json(facts))
    elif setup.is_table:
        _show(setup, found, unknown)
    else:
        for each in found:
            if each.prospect is not Prospect.goes_on:
                print(line_of(_line(each)))
    if any(each.prospect is Prospect.damaged for each in found):
        return INTEGRITY
    return CONFLICT if any(each.is_problem for each in found) else OK


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What the code prints while it is replayed is not what this command has to say."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _line(each: Forecast) -> tuple[object, ...]:
    return each.run_id, each.prospect.value, each.agent, each.status.value, each.call, each.where, each.detail


def _show(setup: Setup, found: Sequence[Forecast], unknown: Counter[str]) -> None:
    """For a terminal: what has the same cause is told once."""
    groups: dict[tuple[str, ...], list[Forecast]] = {}
    for each in found:
        if each.prospect is not Prospect.goes_on:
            key = (each.prospect.value, each.agent, each.why, each.call, each.where)
            groups.setdefault(key, []).append(each)
    has_color = setup.has_color(sys.stdout)
    for alike in groups.values():
        first = alike[0]
        names = ", ".join(each.run_id for each in alike[:_SHOWN])
        more = f" and {len(alike) - _SHOWN} more" if len(alike) > _SHOWN else ""
        at = f" at {first.call}" if first.call else ""
        title = f"✖ {count(len(alike), 'run')} of {first.agent} {first.prospect.value}{at}: {first.why or first.detail}"
        print(paint(clean(title, one_line=True), _STYLES[first.prospect], has_color))
        for text in (first.where, first.detail if first.why else "", f"{names}{more}"):
            if text:
                print(f"  {clean(text, one_line=True)}")
        for line in first.advice:
            print(f"  {clean(line)}")
    if unknown:
        names = ", ".join(f"{name} ({number})" for name, number in unknown.most_common())
        said = clean(f"Not looked at, since these files do not have their agents: {names}.", one_line=True)
        print(folded(said, sys.stderr), file=sys.stderr)
    good = sum(each.prospect is Prospect.goes_on for each in found)
    print(f"{count(len(found), 'run')} looked at, {good} would go on.", file=sys.stderr)
