"""Sealed places: what no program can mend ends the run there, and is raised to nobody.

Frameworks of agents tell a model of whatever a tool raises, and the model tries again. For a failure that proves that
nothing happened this is right. For what is left here it would do a second time what has happened, or may have.
"""

from __future__ import annotations

from typing import Final

from holdfast.codec import said_by
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.outcomes import key_of
from holdfast.running.scopes import Scope, current_scope

_ADVICE: Final = "Mend it, then `holdfast resume`: what is in doubt is asked of a person."


def reason_for(scope: Scope, error: BaseException, key: str = "") -> Blocked:
    """Why a run is blocked that met this in a sealed place, and at which call."""
    asked = key or key_of(error) or scope.path
    notes = " ".join(getattr(error, "__notes__", ()))
    detail = f"{said_by(error)} {notes}".strip()
    return Blocked(Trouble(Cause.sealed, asked, detail=detail, advice=_ADVICE))


async def seal(error: BaseException) -> None:
    """Return if this may be raised to the code; in a sealed place it ends the run, and this never returns."""
    scope = current_scope()
    if isinstance(scope, Scope) and scope.sealed and scope.body is None and not scope.run.life.dead:
        await scope.run.block(reason_for(scope, error))


def stop_now(scope: Scope, error: BaseException) -> None:
    """The same where nothing can be awaited: the run is told to end; what is raised next, nobody is told of."""
    scope.run.life.refuse(reason_for(scope, error))
