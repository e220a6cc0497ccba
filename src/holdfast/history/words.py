"""How durations, times, amounts, counts and states are said to people, in few letters."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from holdfast.base.clock import now_us
from holdfast.model import Proof, Status


def word_of(status: Status) -> str:
    """`in doubt`: a status as it stands in a sentence."""
    return status.value.replace("_", " ")


def duration(seconds: float) -> str:
    """`0.8s`, `41s`, `3m12s`, `3h05m`, `12d`"""
    if seconds < 0.001:
        return "0ms"
    if seconds < 0.1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d"


def amount(cost: float) -> str:
    """`$0.42`, `$0.0031`, or nothing."""
    if not cost:
        return ""
    return f"${cost:.2f}" if cost >= 0.01 else f"${cost:.2g}"


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 run`, `3 runs`"""
    return f"{number:,} {one if number == 1 else many or one + 's'}".replace(",", " ")


def size(number: int) -> str:
    """`4.1 MB`"""
    amount_left = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount_left < 1000 or unit == "GB":
            return f"{amount_left:.0f} {unit}" if unit == "B" else f"{amount_left:.1f} {unit}"
        amount_left /= 1000
    raise AssertionError


# times


def clock_time(at: datetime, *, now: datetime) -> str:
    """`14:05:00`, or the day and `14:05` if it is not today, in local time."""
    local, today = at.astimezone(), now.astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M}"


def left_text(due: datetime, *, now: datetime | None = None) -> str:
    """`in 3h05m`"""
    left_s = due.timestamp() - (now_us() / 1e6 if now is None else now.timestamp())
    return f"in {duration(left_s)}" if left_s > 0 else "due now" if left_s > -5 else f"due {duration(-left_s)} ago"


def due_text(due: datetime, *, now: datetime) -> str:
    """`14:05 (in 3h05m)`"""
    return f"{clock_time(due, now=now)} ({left_text(due, now=now)})"


def proof_text(word: str) -> str:
    """How it is known that a worker is dead; a word that this version does not know, as it is."""
    proof = next((each for each in Proof if each == word), None)
    match proof:
        case None:
            return word
        case Proof.lock:
            return "its lock is free"
        case Proof.session:
            return "its session is gone"
        case Proof.boot:
            return "the machine was restarted"
        case Proof.lease:
            return "its lease ran out"
        case Proof.gone:
            return "it has no row any more"
        case Proof.released:
            return "it gave the run back"
        case _:
            assert_never(proof)
