"""What to do with an effect in doubt: pure decisions, no I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from holdfast.base.data import data
from holdfast.model import Proof

#: Proofs that a former owner cannot act any more. An expired lease alone is none: the process may only sleep. Nor is a
#: session that another machine lost: it may only be cut off.
PROVEN = frozenset({Proof.lock, Proof.boot, Proof.released})

CANCELLED = "cancelled"  #: instead of a person's verdict: nobody is asked any more

OnDoubt = Literal["ask", "retry", "undo", "fail"]


class Ruling(StrEnum):
    """What follows from what is known about an effect in doubt."""

    landed = "landed"  #: it happened; take the result
    again = "again"  #: it did not happen (or may be repeated); a new attempt
    verify_later = "verify_later"  #: too early to believe that it did not happen
    ask = "ask"  #: a person decides
    undo = "undo"  #: take back what may have happened, then fail
    fail = "fail"  #: the agent gets EffectInDoubt


@data
class Doubt:
    """What is known about an attempt whose outcome is not.

    `is_over`: nobody can still be executing it: the process is proven dead, or the body ended in this process.
    `since_us`: when that was found.
    """

    cause: str
    is_over: bool
    since_us: int


def rule(
    doubt: Doubt, *, verdict: Literal["landed", "not_landed"] | None, on_doubt: OnDoubt, settle_us: int, now_us: int
) -> Ruling:
    """`verdict`: what `verify` said; None if there is no verify or it failed."""
    if verdict == "landed":
        return Ruling.landed
    if verdict == "not_landed" and doubt.is_over:
        return Ruling.again if now_us - doubt.since_us >= settle_us else Ruling.verify_later
    return {"ask": Ruling.ask, "retry": Ruling.again, "undo": Ruling.undo, "fail": Ruling.fail}[on_doubt]
