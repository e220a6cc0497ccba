"""`holdfast worker`"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVarTuple, Unpack

import click

from holdfast.app import Holdfast, connect
from holdfast.base import faults
from holdfast.base.config import URL, Settings
from holdfast.base.telemetry import info, warn
from holdfast.cli.durations import seconds
from holdfast.cli.failure import FAILED, OK, USAGE, Failure
from holdfast.cli.heartbeat import Heartbeat, outlets
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command
from holdfast.cli.source import Found, agents_in, load, split_source
from holdfast.cli.stop_signals import StopSignals
from holdfast.cli.supervisor import Supervisor, follow_supervisor
from holdfast.cli.worker_events import Events
from holdfast.codec import said_by
from holdfast.errors import StoreAway
from holdfast.verbs.agent import Agent
from holdfast.worker.hiding import hide_url as take_out_url

Args = TypeVarTuple("Args")
SetUp = Callable[[Holdfast], object]

_AWAY_S = 1.0
_COUNTED = (signal.SIGTERM, signal.SIGINT)


@command("worker", here="executes runs in this process")
@click.argument("sources", metavar="FILE[:AGENT]...", nargs=-1, required=True)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only runs of this queue; may be repeated.")
@click.option("--concurrency", type=Number(min=1), default=100, show_default=True, help="Runs at once, per process.")
@click.option(
    "--drain-timeout",
    "drain_s",
    callback=seconds,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="How long calls under way may take to end when it stops.",
)
@click.option("--processes", type=Number(min=1), metavar="N", help="So many processes; those that die are replaced.")
@click.option("--heartbeat", metavar="FILE", help="Write a sign of life there; `holdfast health FILE` reads it.")
@click.option("--hide-url", is_flag=True, help="Take HOLDFAST_URL out of the environment that agents see.")
def worker_command(
    setup: Setup,
    sources: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    drain_s: float,
    processes: int | None,
    heartbeat: str | None,
    hide_url: bool,
) -> int:
    """Execute runs of the agents in these files until SIGTERM or Ctrl-C.

    FILE is a Python file or a module: all agents in it, or the one that is named. A function `setup(app)` in it, plain
    or async, is called in every process before work begins: the place to declare queues, schedules and triggers.

    The first signal hands runs over to other workers, the second leaves at once. Events go to stderr; with --json, as
    lines of JSON to stdout. Under systemd it says when it is ready, and feeds the watchdog.

    \b
    holdfast worker agents.py
    holdfast worker agents.py --queue slow --processes 4
    """
    is_child = follow_supervisor(drain_s)
    events = Events(setup, shows_pid=is_child or processes is not None)
    with events, redirect_stdout(sys.stderr), Heartbeat(outlets(heartbeat)) as pulse:
        url = hidden(setup) if hide_url else setup.db
        if not is_child and (switches := faults.switched_on()):
            warn("environment.for_tests", switches=switches)
        if processes is not None:
            again = _child_command(setup, sources, queues, concurrency, drain_s, hide_url)
            own = {URL: url} if url else {}  # not as an argument: the list of processes shows those to everybody
            parent = Supervisor(again, processes, drain_s, environment=own, hears=pulse.is_needed)
            pulse.follow(parent.heartbeats.sign_us)
            return asyncio.run(parent.supervise())
        plan = planned(sources)
        events.more["worker.started"] = {"pid": os.getpid(), "queues": [*queues], "concurrency": concurrency}
        with asyncio.Runner(loop_factory=lambda: SignalLoop(events, is_child=is_child)) as runner:
            work = _work(url, plan, pulse, queues=queues, concurrency=concurrency, drain_s=drain_s)
            return runner.run(work)


def hidden(setup: Setup) -> str:
    """The store's url, which is not in the environment any more."""
    if setup.db:
        raise Failure(
            "--hide-url is about HOLDFAST_URL, and --db is shown to everybody in the list of processes. "
            "Set HOLDFAST_URL instead of --db.",
            USAGE,
        )
    return take_out_url()


def _child_command(
    setup: Setup,
    sources: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    drain_s: float,
    hide_url: bool,
) -> list[str]:
    """This command for one process. What the parent can import, a child can, and nothing else."""
    is_in_path = sys.path[:1] in ([""], [os.getcwd()])
    given = [sys.executable, *([] if is_in_path else ["-P"]), "-m", "holdfast", "worker", *sources]
    given += [part for name in queues for part in ("--queue", name)]
    given += ["--concurrency", str(concurrency), "--drain-timeout", f"{drain_s:g}s"]
    return given + ["--json"] * setup.json + ["--no-color"] * setup.no_color + ["--hide-url"] * hide_url


# what is executed


@dataclass(frozen=True, slots=True)
class WorkerFiles:
    """What the files have: agents, and functions to be called before work begins, by the file they are in."""

    agents: Found
    setups: dict[str, SetUp]


def planned(sources: tuple[str, ...]) -> WorkerFiles:
    """Load the files."""
    plan = WorkerFiles({}, {})
    for given in sources:
        module, name = load(given)
        for agent in _chosen(given, module, name):
            known = plan.agents.setdefault(agent.name, agent)
            if known.fn is not agent.fn:
                raise Failure(
                    f"{given}: an agent {agent.name!r} is in another file too ({known._source}). "
                    "Give one of them another name with @hf.agent(name=…).",
                    USAGE,
                )
        function = vars(module).get("setup")
        if function is not None and getattr(function, "__module__", None) == module.__name__:
            plan.setups[split_source(given)[0]] = _checked_setup(given, function)
    return plan


def _chosen(given: str, module: ModuleType, name: str | None) -> list[Agent[..., Any]]:
    found = agents_in(module)
    if not found:
        raise Failure(f"{given} has no agent (a function decorated with @hf.agent).", USAGE)
    if name is None:
        return list(found.values())
    value = vars(module).get(name)
    agent = value if isinstance(value, Agent) else found.get(name)
    if agent is None:
        raise Failure(f"{given}: there is no agent {name!r}; it has {', '.join(found)}.", USAGE)
    return [agent]


def _checked_setup(given: str, function: Any) -> SetUp:
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        raise Failure(
            f"{given}: `setup` is called with the app before work begins, and this one cannot be ({error}). "
            "Write `def setup(app)`, or give it another name if it is meant for something else.",
            USAGE,
        ) from error
    checked: SetUp = function
    return checked


async def _work(
    url: str | None, plan: WorkerFiles, pulse: Heartbeat, *, queues: tuple[str, ...], concurrency: int, drain_s: float
) -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SignalLoop)
    loop.count_signals(asyncio.current_task())
    agents, settings = list(plan.agents.values()), Settings(drain_s=drain_s)
    with suppress(asyncio.CancelledError):  # by the first signal
        if plan.setups:
            async with _opened(lambda: connect(url), pulse) as app:  # without agents: it executes nothing yet
                for place, function in plan.setups.items():
                    await _set_up(app, place, function)
        served = queues or None
        async with _opened(
            lambda: connect(url, agents=agents, concurrency=concurrency, queues=served, settings=settings), pulse
        ) as app:
            lease = app._here.lease
            pulse.follow(lambda: lease.answered_us)
            await app.work()
    info("worker.stopped", pid=os.getpid())
    return OK


@asynccontextmanager
async def _opened(make: Callable[[], Holdfast], pulse: Heartbeat) -> AsyncIterator[Holdfast]:
    """An app; a server that is not there yet is waited for."""
    told = ""
    while True:
        async with AsyncExitStack() as stack:
            try:
                app = await stack.enter_async_context(make())
            except StoreAway as away:
                pulse.asked_in_vain()
                if str(away) != told:
                    warn("store.away", detail=str(away))
                told = str(away)
            else:
                yield app
                return
        await asyncio.sleep(_AWAY_S)


async def _set_up(app: Holdfast, place: str, function: SetUp) -> None:
    try:
        made = function(app)
        if inspect.isawaitable(made):
            await made
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        where = f" ({frames[0].filename}:{frames[0].lineno})" if frames else ""
        raise Failure(f"setup(app) in {place} failed: {said_by(error)}{where}.", FAILED) from error


class SignalLoop(asyncio.SelectorEventLoop):
    """A loop that counts signals: the first stops in good order, the second leaves at once, as a crash would.

    `Holdfast.work` hands over by itself when a signal comes, but it knows only of the time while it works. Before and
    after that the first signal cancels what is being done. A handler that is added here is called as on any loop: the
    loop learns of signals by other means than the interpreter's handler, which stays with the counting.

    Under a supervisor it is the parent that loses its patience.
    """

    def __init__(self, events: Events, *, is_child: bool) -> None:
        super().__init__()
        self._events = events
        self._is_child = is_child
        self.stop_signals = StopSignals()
        self._to_cancel: asyncio.Task[Any] | None = None
        self._handled: set[int] = set()

    def count_signals(self, task: asyncio.Task[Any] | None) -> None:
        """From now on; `task` is what the first one cancels."""
        self._to_cancel = task
        for number in _COUNTED:
            signal.signal(number, self._signal_came)

    def add_signal_handler(self, sig: int, callback: Callable[[Unpack[Args]], Any], *args: *Args) -> None:
        super().add_signal_handler(sig, callback, *args)
        self._handled.add(sig)
        self._count_again(sig)

    def remove_signal_handler(self, sig: int) -> bool:
        was_there = sig in self._handled
        self._handled.discard(sig)
        if self._to_cancel is None or sig not in _COUNTED:
            return super().remove_signal_handler(sig)
        # Removed, it would end the process for a moment: until it is counted again.
        super().add_signal_handler(sig, lambda: None)
        self._count_again(sig)
        return was_there

    def close(self) -> None:
        self._to_cancel = None
        super().close()

    def _count_again(self, number: int) -> None:
        if self._to_cancel is not None and number in _COUNTED:
            signal.signal(number, self._signal_came)

    def _signal_came(self, number: int, frame: object) -> None:
        if not self.stop_signals.is_first():
            if self.stop_signals.is_second() and not self._is_child:
                os._exit(128 + number)
            return
        self._events.more["worker.stopping"] = {"signal": signal.Signals(number).name}
        if number not in self._handled:
            self.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        info("worker.stopping", runs=0)
        assert self._to_cancel is not None
        self._to_cancel.cancel()
