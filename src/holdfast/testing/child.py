"""The process that a crash test kills: it starts the run with this id, or goes on with it.

    python -m holdfast.testing.child FILE AGENT ID URL [--alone] [--driven] < input

As a worker it takes up whatever else is left over in the store; with `--alone` it cares for this run only, as
`holdfast.run` does. It ends with 0 once the run (and the runs it started) ended or are parked: what became of them is
in the store. With `--driven` somebody will come who answers: it ends whatever the deadline of a question or signal is.
A failed run stays failed: unlike `holdfast.run`, this never retries.

    python -m holdfast.testing.child --serve

reads such orders as JSON lines and forks a process for each. Holdfast is imported once, FILE in every process anew: a
life costs a few milliseconds and is a real process all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.app import Holdfast
from holdfast.app.options import AppOptions
from holdfast.base import faults
from holdfast.base.config import Settings, store_url
from holdfast.base.source_code import code_of
from holdfast.errors import CorruptJournal, HoldfastError, RunError, UsageError
from holdfast.history.info import RunInfo
from holdfast.model import Status
from holdfast.store import open_store
from holdfast.testing.parking import open_waits
from holdfast.verbs.agent import Agent, Call

#: Exit code when Holdfast itself refused: the store is damaged, full, or the call is wrong.
REFUSED = 3

_GOES_ON = (Status.queued, Status.running)
_POLL_S = 0.02


def load(file: str) -> ModuleType:
    """The module in a file: never as `__main__`, with its folder on the path."""
    path = Path(file).resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = f"holdfast_child_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their module up while it is executed
    spec.loader.exec_module(module)
    return module


def agents_of(module: ModuleType) -> dict[str, Agent[..., Any]]:
    """The agents that a module has, by name."""
    return {each.name: each for each in vars(module).values() if isinstance(each, Agent)}


async def go_on(
    file: str, agent_name: str, *, run_id: str, url: str, text: str, alone: bool, driven: bool, left: Collection[str]
) -> None:
    """Start the run or go on with it, and wait until it and the runs it started are over or parked.

    `left`: what somebody who came to drive has left open. It is waited for as long as it has a deadline.
    """
    agents = agents_of(load(file))
    if agent_name not in agents:
        raise UsageError(f"{file} has no agent {agent_name!r}; it has {', '.join(sorted(agents)) or 'none'}.")
    app = Holdfast(store_url(url), AppOptions(tuple(agents.values()), only_own=alone))
    async with app:
        run = await app.start(Call._decoded(agents[agent_name], text), id=run_id)
        if (await run.info()).is_lost:
            await run.resume()  # at once, and whatever the damage; a worker would find it with its next sweep
        family = _Family(app, run_id, alone)
        ending = asyncio.create_task(family.wait_over())
        while driven and not ending.done() and not await family.waits_for_somebody(left):
            await asyncio.wait({ending}, timeout=_POLL_S)
        if driven:
            ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending


class _Family:
    """The run and, unless it is cared for alone, the runs it started."""

    def __init__(self, app: Holdfast, run_id: str, alone: bool) -> None:
        self._app = app
        self._run_id = run_id
        self._alone = alone

    async def wait_over(self) -> None:
        """Until each of them is over, or would wait for ever if nobody did anything."""
        waiting = [self._run_id]
        while waiting:
            for each in waiting:
                try:
                    await self._app.get(each)._result_or_needs()
                except (RunError, CorruptJournal) as error:
                    print(f"{type(error).__name__}: {error}")
            waiting = [info.id for info in await self._infos() if info.id != self._run_id and info.status in _GOES_ON]

    async def waits_for_somebody(self, left: Collection[str]) -> bool:
        """Is something open that a person or a signal can end, and does nothing go on until then?"""
        infos = await self._infos()
        return not any(info.status in _GOES_ON for info in infos) and not open_waits(infos).keys() <= {*left}

    async def _infos(self) -> list[RunInfo]:
        if self._alone:
            return [await self._app.get(self._run_id).info()]
        infos = await self._app.runs(limit=1000)
        return [info for info in infos if info.id == self._run_id or info.id.startswith(f"{self._run_id}.")]


#: What a process that executes runs imports when it begins to.
_LATE = (
    "app.parts",
    "app.shift",
    "app.starts",
    "automation.outbox",
    "automation.schedules.schedules",
    "automation.triggers",
    "worker.jumps",
    "worker.reach",
    "worker.strays",
    "worker.sweep",
)


def warm_up() -> None:
    """Do once what each process would do when it has begun to work, before they are forked."""
    open_store("warm.db", settings=Settings())  # the driver and the queries; opens nothing
    for name in _LATE:
        importlib.import_module(f"holdfast.{name}")
    assert code_of(warm_up)  # compiles what it finds words with


def _serve() -> None:
    warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            _obey(order)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def _obey(order: dict[str, Any]) -> None:
    """In the forked process: become what the order says, and never return."""
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["env"])
        spec, trace = (os.environ.get(each, "") for each in ("HOLDFAST_FAULT", "HOLDFAST_FAULT_TRACE"))
        faults._faults = faults.Faults(spec, trace) if spec or trace else None  # read before the fork, for nobody
        where = {"run_id": order["id"], "url": order["url"], "text": order["input"]}
        how = {each: order[each] for each in ("alone", "driven", "left")}
        asyncio.run(go_on(order["file"], order["agent"], **where, **how))
        code = 0
    except HoldfastError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        code = REFUSED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(arguments: list[str]) -> int:
    if arguments == ["--serve"]:
        _serve()
        return 0
    alone, driven = ("--alone" in arguments, "--driven" in arguments)
    given = [each for each in arguments if each not in ("--alone", "--driven")]
    if len(given) != 4:
        print("usage: python -m holdfast.testing.child FILE AGENT ID URL [--alone] [--driven] < input", file=sys.stderr)
        return 2
    file, agent, run_id, url = given
    where = {"run_id": run_id, "url": url, "text": sys.stdin.read()}
    try:
        asyncio.run(go_on(file, agent, **where, alone=alone, driven=driven, left=()))
    except HoldfastError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
