"""`holdfast resume`"""

from __future__ import annotations

import json
import shlex

import click

from holdfast import control
from holdfast.cli.execution import Attempt, executing
from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.setup import Setup, command
from holdfast.cli.source import Found, is_source, known_agents, split_source
from holdfast.cli.stores import check_exists, complete_run
from holdfast.cli.text import clean
from holdfast.model import Kind, RunRow, Status
from holdfast.store.base import Store


@command("resume")
@click.argument("given", metavar="RUN [FILE[:AGENT]]...", nargs=-1, required=True, shell_complete=complete_run)
@click.option("--app", metavar="FILE", help="Where the agent's code is. [env: HOLDFAST_APP]")
@click.option("--retry", is_flag=True, help="Open a failed or cancelled run again; what was done is kept.")
@click.option("--note", default="", metavar="TEXT", help="Why it is resumed or retried; kept in the journal.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer than this."
)
def resume_command(
    setup: Setup, given: tuple[str, ...], app: str | None, retry: bool, note: str, timeout_s: float | None
) -> int:
    """Have a run go on where it was.

    Needs the agent's code: FILE, --app, HOLDFAST_APP, or `agents = ["FILE"]` under [tool.holdfast] in pyproject.toml.
    A run that is done prints its result; one that failed is opened again with --retry only.

    \b
    holdfast resume issue-7 agent.py
    holdfast resume agent.py:research issue-7
    """
    wanted, sources = _sorted_out(given)
    check_exists(setup)
    agents = known_agents(sources, app)

    async def work(attempt: Attempt) -> str | None:
        async with executing(setup, agents.values()) as executor:
            row = await control.find(executor.store, wanted)
            run = executor.handle(row.id, row.thread_id)
            if not row.status.is_final or retry:
                _check_agent(row, agents, sources, await _last_source(executor.store, row))
            attempt.started(run)
            if retry and row.status in (Status.failed, Status.cancelled):
                await run.retry(note=note)
            else:
                await run.resume(note=note)
            return await attempt.outcome(run, executor.store, timeout_s)

    code = "".join(f" {shlex.quote(each)}" for each in sources) + (f" --app {shlex.quote(app)}" if app else "")
    return Attempt(setup, lambda found: f"holdfast resume {shlex.quote(found)}{code}").execute(work)


async def _last_source(store: Store, row: RunRow) -> str:
    """The file that the run was last executed from: to be named, not to be loaded, since a store is only data."""
    for record in reversed(await store.records(row.id)):
        if record.kind == Kind.claimed:
            return str(json.loads(record.payload or "{}").get("source") or "FILE.py")
    return "FILE.py"


def _sorted_out(given: tuple[str, ...]) -> tuple[str, list[str]]:
    """The run and the sources, in either order."""
    sources = [each for each in given if is_source(each)]
    runs = [each for each in given if not is_source(each)]
    if len(given) == 1:
        return given[0], []
    if len(runs) != 1:
        raise Failure(f"Give one run and the file with its agent; got {' '.join(given)}.", USAGE)
    return runs[0], sources


def _check_agent(row: RunRow, agents: Found, sources: list[str], last: str) -> None:
    if row.agent not in agents:
        has = f"has {', '.join(agents)}" if agents else "was not given"
        raise Failure(
            f"Run {row.id} is of agent {row.agent!r}; its code {has}. Give the file (or --app, HOLDFAST_APP). It "
            f"was last executed from this one: holdfast resume {row.id} {clean(last)}",
            USAGE,
        )
    for each in sources:
        name = split_source(each)[1]
        if name is not None and name not in (row.agent, agents[row.agent].fn.__name__):
            raise Failure(f"Run {row.id} is of agent {row.agent!r}, not {name!r}.", USAGE)
