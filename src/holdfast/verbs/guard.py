"""Guards: what a run relies on outside. `running/guards` looks at them when the run is taken up again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal

from holdfast.base import faults
from holdfast.base.clock import monotonic_us, now_us
from holdfast.codec import Coder, coder_for, digest, roundtrip_error
from holdfast.errors import UsageError
from holdfast.journal.drafts import OpenCall
from holdfast.model import Kind
from holdfast.running.call import DurableCall
from holdfast.running.guards import Fingerprint, Guard, take
from holdfast.running.outcomes import deliver, remember_key
from holdfast.running.scopes import Scope, in_branch

if TYPE_CHECKING:
    from holdfast.journal.replay import Entry

_GUARD = "hf:guard"
_CODER: Coder[dict[str, Any]] = coder_for(dict[str, Any])


async def guard(name: str, fingerprint: Fingerprint, *, on_change: Literal["report", "block"] = "report") -> None:
    """Rely on something outside: a file, a branch, a page. If it changes while nobody works at the run, that is told.

    `fingerprint` is a function that returns text, or one of `hf.guards`. It is taken here, and recorded as the result
    of a step. Each time the run is taken up again it is taken once more, after the replay and before anything new is
    executed; the code does not see it. What differs is on the receipt. With `on_change="block"` the run is `blocked`
    then, also if it cannot be looked at: `resume` accepts what is there now. Take it again, under the same name, after
    the run itself has changed what it guards.

    Example: `await hf.guard("spec", hf.guards.file("spec.md"), on_change="block")`
    """
    scope = in_branch("hf.guard()")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"hf.guard() takes a name, which people read; got {name!r}.")
    if not callable(fingerprint):
        raise UsageError(f"hf.guard({name!r}) takes a function that returns text; got {fingerprint!r}.")
    if on_change not in ("report", "block"):
        raise UsageError(f"hf.guard({name!r}): on_change= takes 'report' or 'block'; got {on_change!r}.")
    await GuardCall(scope, Guard(name, fingerprint, "", on_change == "block")).make()


class GuardCall(DurableCall[Any]):
    """One taking of a fingerprint."""

    __slots__ = ("guard",)

    def __init__(self, scope: Scope, guard: Guard) -> None:
        super().__init__(scope, _GUARD, digest(guard.name))
        self.guard = guard

    @property
    def coder(self) -> Coder[Any]:
        return _CODER

    async def answer(self, entry: Entry) -> None:
        said = await super().answer(entry)
        known = self.guard
        assert entry.outcome is not None
        self.run.guards.replayed(
            Guard(known.name, known.fingerprint, str(said["text"]), known.blocks), entry.outcome.seq
        )

    async def execute(self) -> None:
        scope, run, key, journal = self.scope, self.run, self.key, self.run.journal
        began = monotonic_us()
        error: Exception | None = None
        kind, payload, text = Kind.done, "", ""
        scope.enter_call()
        try:
            journal.begin(OpenCall(key, self.name, 1, now_us(), self.digest, None))
            try:
                with run.activity.busy():
                    text = await take(self.guard.fingerprint, run.host.settings.guard_s)
                payload = json.dumps({"name": self.guard.name, "text": text})
            except Exception as caught:
                kind = Kind.failed
                payload, error = roundtrip_error(caught, ())
            faults.point("guard.taken")
            took = monotonic_us() - began
            await deliver(scope, lambda tick: journal.end(key, kind, tick=tick, took=took, payload=payload))
        except asyncio.CancelledError:
            if not run.life.dead and journal.is_open(key):
                journal.end(key, Kind.cancelled, tick=run.ticks.tick, took=monotonic_us() - began, payload=None)
            raise
        finally:
            scope.leave_call()
        if error is not None:
            raise remember_key(error, key)
        run.guards.taken(self.guard.name, text)
