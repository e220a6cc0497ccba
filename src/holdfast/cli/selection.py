"""Acting on many runs: those that were named, or all that fit; and what became of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.cli.clients import complete_defined
from holdfast.cli.failure import CONFLICT, OK, USAGE, Failure, code_of
from holdfast.cli.lists import Listed, show_list
from holdfast.cli.setup import Setup, status_option
from holdfast.cli.stores import complete_run
from holdfast.cli.text import SHAPES, clean
from holdfast.errors import HoldfastError
from holdfast.handle.run import Run
from holdfast.history.info import RunInfo, info_of
from holdfast.history.words import count
from holdfast.model import UNFINISHED, RunFilter, Status
from holdfast.store.runs import every_run

F = TypeVar("F", bound=Callable[..., Any])

_AT_ONCE = 32  #: acting on a run that executes waits for its worker; the others need not wait for that


@dataclass(frozen=True, slots=True)
class Filters:
    """Which runs, as they were told from others."""

    agent: str | None = None
    queue: str | None = None
    statuses: tuple[str, ...] = ()
    every: bool = False

    @property
    def is_given(self) -> bool:
        return self.every or bool(self.agent or self.queue or self.statuses)

    def check(self, runs: Sequence[str], what: str) -> None:
        """Runs or filters, not both and not neither."""
        if runs and self.is_given:
            raise Failure(f"Name the runs to {what}, or give filters; not both.", USAGE)
        if not runs and not self.is_given:
            raise Failure(f"Which runs? Name them, or say --agent, --queue, --status or --all to {what} many.", USAGE)

    def __str__(self) -> str:
        named = [("agent", self.agent), ("queue", self.queue), ("status", " or ".join(self.statuses))]
        return ", ".join(f"{name} {value}" for name, value in named if value) or "all"


def filter_options(function: F) -> F:
    """Give a command --agent, --queue, --status and --all."""
    for option in (
        click.option("--all", "every", is_flag=True, help="All runs that it can be done to."),
        status_option((each for each in Status if each in UNFINISHED), "All runs that stand so"),
        click.option("--queue", metavar="NAME", shell_complete=complete_defined("queue"), help="All runs of a queue."),
        click.option("--agent", metavar="NAME", help="All runs of an agent."),
    ):
        function = option(function)
    return function


def runs_argument(function: F) -> F:
    """Give a command RUN..."""
    return click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)(function)


async def chosen(app: Holdfast, runs: Sequence[str], filters: Filters, default: Iterable[Status]) -> list[RunInfo]:
    """The runs named, or those that fit the filters; `default`: the statuses that are meant if none is given."""
    if runs:
        found = [await (await app.find(given)).info() for given in runs]
        return list({info.id: info for info in found}.values())
    wanted = frozenset(map(Status, filters.statuses)) or frozenset(default)
    dead = await app._store.dead_workers()
    fitting: list[RunInfo] = []
    for status in (each for each in Status if each in wanted):
        which = RunFilter(status=frozenset({status}), agent=filters.agent, queue=filters.queue)
        fitting += [info_of(row, is_lost=row.owner in dead) async for row in every_run(app._store, which)]
    return fitting


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run."""

    run: RunInfo
    status: Status
    text: str
    code: int = OK

    def listed(self) -> Listed:
        shape, word, style = SHAPES[self.status]
        facts = {
            "id": self.run.id,
            "agent": self.run.agent,
            "was": self.run.status.value,
            "status": self.status.value,
            "outcome": self.text,
        }
        line = (self.run.id, self.status.value, self.text, self.run.agent)
        return Listed(facts, line, (f"{shape} {word}", self.run.id, self.run.agent, self.text), style)


#: How a run stands after something was done to it, what happened in words, and whether that is a conflict.
Told = tuple[Status, str, int]


async def act_on(
    app: Holdfast, infos: Sequence[RunInfo], act: Callable[[Run[Any], RunInfo], Awaitable[Told]]
) -> list[Outcome]:
    """Do it to each run, which stood so when it was chosen."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(info: RunInfo) -> Outcome:
        async with gate:
            run = app.get(info.token)
            try:
                return Outcome(info, *await act(run, info))
            except HoldfastError as error:
                return Outcome(info, await run.status(), clean(str(error), one_line=True), code_of(error))

    return list(await asyncio.gather(*map(one, infos)))


def already(status: Status) -> Told:
    """The run has ended: there is nothing to be done to it."""
    return status, f"already {SHAPES[status][1]}", CONFLICT


def report(setup: Setup, outcomes: Sequence[Outcome], *, nothing: str, was_named: bool) -> int:
    """Print what became of each run; the exit code. One that fitted a filter and ended meanwhile is no conflict."""
    told = Counter(outcome.text for outcome in outcomes)
    footer = " · ".join(f"{number} {text}" for text, number in told.most_common(4)) if len(outcomes) > 1 else ""
    show_list(
        setup,
        [outcome.listed() for outcome in outcomes],
        head=("STATUS", "RUN", "AGENT", "WHAT HAPPENED"),
        flexible=3,
        nothing=nothing,
        footer=f"{count(len(outcomes), 'run')}: {footer}" if footer else "",
    )
    codes = [o.code for o in outcomes if o.code and (was_named or o.code != CONFLICT)]
    return codes[0] if codes else OK
