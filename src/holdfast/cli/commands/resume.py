"""`holdfast resume`"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.base.hints import hint, resume_hint
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import client, with_app
from holdfast.cli.execution import Attempt, Patience, executing, patience_options
from holdfast.cli.failure import OK, USAGE, Failure
from holdfast.cli.project import Project
from holdfast.cli.selection import Filters, Outcome, Told, act_on, already, chosen, filter_options, report
from holdfast.cli.setup import Setup, command
from holdfast.cli.source import Found, is_source, known_agents, split_source
from holdfast.cli.stores import check_exists, complete_run, with_store
from holdfast.cli.takers import advice_for, tell
from holdfast.handle.run import Run
from holdfast.history.info import RunInfo
from holdfast.history.lookup import find
from holdfast.journal.pages import source_of
from holdfast.model import RunRow, Status
from holdfast.model.budgets import Budget
from holdfast.store.contract import Store

_LIMITS: Mapping[str, Callable[[str], float]] = {"tokens": int, "cost": float, "steps": int}
_CUT_OFF = "a worker takes it over, or holdfast resume RUN FILE"
#: What helps runs that are not paused.
_ADVICE = {
    Status.blocked: "it needs a fix (holdfast show RUN), then holdfast resume RUN FILE",
    Status.in_doubt: "settle it (holdfast in-doubt)",
    Status.waiting: "it waits (holdfast show RUN)",
    Status.quarantined: "its stored data is damaged (holdfast verify RUN)",
}


@command("resume")
@click.argument("given", metavar="[RUN]... [FILE[:AGENT]]...", nargs=-1, shell_complete=complete_run)
@filter_options
@click.option("--app", metavar="FILE", help="Where the agent's code is. [env: HOLDFAST_APP]")
@click.option("--retry", is_flag=True, help="Open a failed or cancelled run again; what was done is kept.")
@click.option(
    "--budget",
    "limits",
    metavar="NAME=AMOUNT",
    multiple=True,
    help="What the run may use from now on, with all that came of it: tokens, cost or steps.",
)
@actor_options
@patience_options
def resume_command(
    setup: Setup,
    given: tuple[str, ...],
    agent: str | None,
    queue: str | None,
    statuses: tuple[str, ...],
    every: bool,
    app: str | None,
    retry: bool,
    limits: tuple[str, ...],
    note: str,
    by: str | None,
    timeout_s: float | None,
    stays: bool,
) -> int:
    """Have runs go on where they were.

    A paused run is handed to the workers: no code is needed; so is any run behind a server (--url). With FILE or --app
    the run is executed here, and its result printed. That is also how a run that is blocked, or was cut off, goes on
    without a worker; its code may then come from HOLDFAST_APP, or from `agents = ["FILE"]` under [tool.holdfast] in
    pyproject.toml. A run that is done prints its result; one that failed is opened again with --retry only. A run whose
    budget is used up goes on once that is raised, with --budget; so does all that came of it.

    \b
    holdfast resume issue-7 issue-8
    holdfast resume --agent research
    holdfast resume issue-7 agent.py
    holdfast resume issue-7 --budget cost=5
    """
    budget = _budget(limits)
    filters = Filters(agent, queue, statuses, every)
    runs, sources = _sorted_out(given)
    filters.check(runs, "resume")
    has_code = bool(sources or app or retry)
    if setup.served is not None:
        if has_code:
            raise Failure("A server executes nothing, its workers do: leave FILE, --app and --retry out.", USAGE)
        if len(runs) == 1 and budget is None and with_store(setup, lambda store: _is_over(store, runs[0])):
            return _tell_end(setup, runs[0], Patience(timeout_s, stays))
        return _hand_over(setup, runs, filters, note, by, budget=budget)
    if filters.is_given or len(runs) > 1:
        if has_code:
            raise Failure(f"One run can be executed here, not several; got {' '.join(given) or filters}.", USAGE)
        if budget is not None:
            raise Failure("--budget is for one run: give its id.", USAGE)
        return _hand_over(setup, runs, filters, note, by)
    if not has_code and (budget is not None or with_store(setup, lambda store: _is_held(store, runs[0]))):
        return _hand_over(setup, runs, filters, note, by, budget=budget)
    return execute_here(
        setup,
        runs[0],
        sources,
        app,
        retry=retry,
        note=note,
        by=by,
        patience=Patience(timeout_s, stays),
        budget=budget,
    )


def _budget(limits: tuple[str, ...]) -> Budget | None:
    """`cost=5`, `steps=10,tokens=9000`."""
    given: dict[str, float] = {}
    for each in ",".join(limits).split(",") if limits else ():
        name, _, amount = (part.strip() for part in each.partition("="))
        if name not in _LIMITS or name in given:
            raise Failure(f"--budget takes tokens, cost or steps, each once, like cost=5; got {each!r}.", USAGE)
        try:
            given[name] = _LIMITS[name](amount)
        except ValueError:
            number = "number" if _LIMITS[name] is float else "whole number"
            raise Failure(f"--budget {name}= takes a {number}; got {amount!r}.", USAGE) from None
    return Budget(**given).checked("--budget") if given else None  # type: ignore[arg-type]


async def _is_held(store: Store, given: str) -> bool:
    """Is it paused, or with a worker that may be about to pause it? Then no code is needed."""
    row = await find(store, given)
    return row.status is Status.paused or (row.owner is not None and row.owner not in await store.dead_workers())


async def _is_over(store: Store, given: str) -> bool:
    return (await find(store, given)).status.is_final


# by the workers


def _hand_over(
    setup: Setup,
    runs: list[str],
    filters: Filters,
    note: str,
    by: str | None,
    *,
    budget: Budget | None = None,
) -> int:
    was_named = bool(runs)

    async def resume(run: Run[Any], was: RunInfo) -> Told:
        if budget is not None:
            await run.resume(budget=budget, by=by, note=note)
            return await run.status(), "budget raised", OK
        if was.status is Status.paused or (was.status is Status.running and not was.is_lost):
            await run.resume(by=by, note=note)  # one that is running may be about to pause
            return await run.status(), "resumed" if was.status is Status.paused else "goes on", OK
        if was.status.is_final:
            return already(was.status)
        if setup.served is not None and was_named:
            await run.resume(by=by, note=note)
            return await run.status(), "handed to the workers", OK
        advice = _CUT_OFF if was.is_lost else _ADVICE.get(was.status, "it goes on by itself")
        return was.status, f"not paused: {advice}", OK

    async def work(client: Holdfast) -> tuple[list[Outcome], str]:
        outcomes = await act_on(client, await chosen(client, runs, filters, [Status.paused]), resume)
        queued = next((o.run.id for o in outcomes if o.status is Status.queued), None)
        return outcomes, "" if queued is None else await advice_for(client, queued)

    outcomes, advice = with_app(setup, work)
    code = report(setup, outcomes, nothing=f"No paused run ({filters}).", was_named=was_named)
    tell(advice)
    return code


def _tell_end(setup: Setup, wanted: str, patience: Patience) -> int:
    """How a run behind a server ended."""

    async def work(attempt: Attempt) -> str | None:
        async with client(setup) as app:
            run = await app.find(wanted)
            attempt.started(run)
            return await attempt.outcome(run, app._store)

    def again(found: str, *options: str) -> str:
        return hint("retry" if "--retry" in options else "resume", found)

    return Attempt(setup, again, patience).execute(work)


# here


def execute_here(
    setup: Setup,
    wanted: str,
    sources: list[str],
    app: str | None,
    *,
    retry: bool,
    note: str,
    by: str | None,
    patience: Patience,
    budget: Budget | None = None,
) -> int:
    """Execute one run in this process to its end."""
    check_exists(setup)
    agents, project = known_agents(sources, app)
    is_here = True  # the code of the run
    last: str | None = None  # else the file that it was last executed from

    async def work(attempt: Attempt) -> str | None:
        nonlocal is_here, last
        async with executing(setup, agents.values()) as executor:
            row = await find(executor.store, wanted)
            run = executor.handle(row.id, row.thread_id)
            is_here = row.agent in agents
            if not is_here:
                last = await source_of(executor.store, row)
            if not row.status.is_final or retry:
                _check_agent(row, agents, sources, project, _with_code(row.id, last, retry=retry))
            attempt.started(run)
            if retry and row.status in (Status.failed, Status.cancelled):
                await run.retry(note=note, by=by)
            else:
                await run.resume(note=note, by=by, budget=budget)
            return await attempt.outcome(run, executor.store)

    def again(found: str, *options: str) -> str:
        if not is_here:
            return resume_hint(found, last, options=options)
        if len(sources) == 1 and not app:
            return resume_hint(found, sources[0], options=options)
        return hint("resume", found, *sources, options=(*(("--app", app) if app else ()), *options))

    return Attempt(setup, again, patience).execute(work)


def _sorted_out(given: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The runs and the sources, in any order."""
    if len(given) == 1:
        return [given[0]], []
    sources = [each for each in given if is_source(each)]
    runs = [each for each in given if not is_source(each)]
    if sources and len(runs) != 1:
        raise Failure(f"Give one run and the file with its agent; got {' '.join(given)}.", USAGE)
    return runs, sources


def _with_code(run_id: str, last: str | None, *, retry: bool) -> str:
    """The same command with a file, for who gave none."""
    known = "It was last executed from this one: " if last is not None else "Like this: "
    return known + resume_hint(run_id, last, options=("--retry",) if retry else ())


def _check_agent(row: RunRow, agents: Found, sources: list[str], project: Project, like: str) -> None:
    if row.agent not in agents:
        has = f"has {', '.join(agents)}" if agents else "was not given"
        ignored = f" ({project.ignored})" if project.ignored else ""
        raise Failure(
            f"Run {row.id} is of agent {row.agent!r}; its code {has}{ignored}. Give the file (or --app, HOLDFAST_APP). "
            f"{like}",
            USAGE,
        )
    for each in sources:
        name = split_source(each)[1]
        if name is not None and name not in (row.agent, agents[row.agent].fn.__name__):
            raise Failure(f"Run {row.id} is of agent {row.agent!r}, not {name!r}.", USAGE)
