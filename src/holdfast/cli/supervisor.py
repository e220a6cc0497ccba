"""Several worker processes under one parent, which replaces those that die.

The parent executes nothing and opens no store, so nothing that an agent does can take it down. Children hold the
reading end of a pipe that only the parent can write to: when it ends, however it ended, they notice and stop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from holdfast.base.clock import monotonic_us
from holdfast.base.telemetry import info, warn
from holdfast.cli.child_heartbeats import ChildHeartbeats
from holdfast.cli.failure import FAILED, INTEGRITY, OK, USAGE
from holdfast.cli.stop_signals import StopSignals

_LONG_LIFE_S = 10.0
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 30.0
_GRACE_S = 5.0
#: Tells a child the number of its end of the pipe.
_PIPE = "HOLDFAST_SUPERVISOR"


def delay_s(lived_s: float, former_s: float) -> float:
    """How long to wait before a child is replaced: not at all, but twice as long each time if they keep dying young."""
    if lived_s >= _LONG_LIFE_S:
        return 0.0
    return min(max(former_s * 2, _FIRST_DELAY_S), _LONGEST_DELAY_S)


class Supervisor:
    """Keeps so many processes of one command alive until a signal says to stop.

    `environment` is what the children get besides this process's own. With `hears`, they send signs of life, of which
    `child_heartbeats` makes one.
    """

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        drain_s: float,
        *,
        environment: Mapping[str, str] | None = None,
        hears: bool = False,
    ) -> None:
        self.heartbeats = ChildHeartbeats(processes)
        self._environment = {**(environment or {}), **(self.heartbeats.environment if hears else {})}
        self._passed = (self.heartbeats.theirs,) if hears else ()
        self._command = command
        self._processes = processes
        self._patience_s = drain_s + _GRACE_S
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self.stop_signals = StopSignals()
        self._code = OK

    async def supervise(self) -> int:
        """The exit code: 0 if all children ended by themselves when they were told to."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        theirs, ours = os.pipe()
        loop.add_reader(self.heartbeats.ours, self.heartbeats.listen)
        try:
            async with asyncio.TaskGroup() as group:
                for place in range(1, self._processes + 1):
                    group.create_task(self._keep(place, theirs))
        finally:
            os.close(theirs)
            os.close(ours)
            loop.remove_reader(self.heartbeats.ours)
            self.heartbeats.close()
        return self._code

    async def _keep(self, place: int, pipe: int) -> None:
        wait_s = 0.0
        while not self._stopping.is_set():
            began = monotonic_us()
            died = await self._live(place, pipe)
            lived_s = (monotonic_us() - began) / 1e6
            if self._stopping.is_set():
                return
            code = died.get("code")
            if code in (USAGE, INTEGRITY):  # it would say the same for ever, or open what lies there now
                self._code = USAGE if code == USAGE else INTEGRITY
                self._stop(signal.SIGTERM)
                return
            wait_s = delay_s(lived_s, wait_s)
            warn("child.died", child=place, **died, lived_s=round(lived_s, 1), restart_in_s=wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()

    async def _live(self, place: int, pipe: int) -> dict[str, object]:
        """One child from its start to its end; how it ended."""
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(pipe, *self._passed),
                env=os.environ | self._environment | {_PIPE: str(pipe)},
            )
        except OSError as error:
            return {"error": str(error)}
        self._children[place] = child
        self.heartbeats.began(child.pid)
        info("child.started", child=place, pid=child.pid)
        if self._stopping.is_set():  # it was being started when the signal came
            with suppress(ProcessLookupError):
                child.terminate()
        code = await child.wait()
        del self._children[place]
        self.heartbeats.ended(child.pid)
        return {"pid": child.pid, **({"code": code} if code >= 0 else {"signal": _name(-code)})}

    # stopping

    def _signalled(self, number: signal.Signals) -> None:
        if self.stop_signals.is_first():
            info("supervisor.stopping", signal=number.name, children=len(self._children))
            self._stop(number)
        elif self.stop_signals.is_second():
            self._kill("a second signal came")
            self._code = 128 + number

    def _stop(self, number: signal.Signals) -> None:
        self._stopping.set()
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.send_signal(number)
        asyncio.get_running_loop().call_later(self._patience_s, self._kill, f"not ended after {self._patience_s:g} s")

    def _kill(self, why: str) -> None:
        for place, child in self._children.items():
            warn("child.killed", child=place, pid=child.pid, why=why)
            with suppress(ProcessLookupError):
                child.kill()
            self._code = self._code or FAILED


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def follow_supervisor(drain_s: float) -> bool:
    """In a child: stop when the parent is gone. False if there is no parent that supervises."""
    given = os.environ.pop(_PIPE, None)  # not for processes that an agent starts
    if given is None:
        return False
    pipe = int(given)
    os.set_inheritable(pipe, False)
    threading.Thread(target=_wait_for_end, args=(pipe, drain_s), name="holdfast-supervisor", daemon=True).start()
    return True


def _wait_for_end(pipe: int, drain_s: float) -> None:
    os.read(pipe, 1)  # nobody writes: it returns at the end of the parent
    warn("supervisor.gone")
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(drain_s + _GRACE_S)
    os._exit(128 + signal.SIGTERM)
