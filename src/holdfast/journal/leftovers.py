"""Recorded effects that the code has not asked for: might a new effect be one of them?

That is asked for every new effect of a run that is being replayed, so it must not cost a look at all of them. An effect
that was asked for, or that a person settled, is never left over again, and a branch that is there again stays so. So
each list is cut short as it is looked at, from its end.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, Protocol, TypeVar


class Recorded(Protocol):
    """A call as the journal knows it."""

    name: str
    digest: str
    is_effect: bool
    claimed: bool
    given: dict[str, Any] | None

    @property
    def branch(self) -> str: ...


R = TypeVar("R", bound=Recorded)


def is_unasked(entry: Recorded) -> bool:
    """Is it an effect that nobody has asked for, and of which no person has said what became of it?"""
    return entry.is_effect and not entry.claimed and entry.given is None


def last_unclaimed(entries: list[R] | None) -> R | None:
    """The last of these that nobody has asked for; the others are cut off."""
    while entries:
        if not entries[-1].claimed:
            return entries[-1]
        entries.pop()
    return None


def may_be(entry: Recorded, branch: str, name: str, digest: str, *, reappeared: Container[str]) -> bool:
    """Might a new effect of this branch be the recorded one, under another name or with other arguments?

    A loop may have become branches: what is left of the branches above counts as well, and one of the same name and
    arguments is it, wherever it was recorded.
    """
    return (
        f"{branch}/".startswith(f"{entry.branch}/" if entry.branch else "")
        or entry.branch not in reappeared
        or (entry.name, entry.digest) == (name, digest)
    )


class Leftovers:
    """The same for all recorded effects of a run, without a look at each."""

    def __init__(self, entries: Iterable[Recorded], reappeared: Container[str]) -> None:
        self._reappeared = reappeared
        self._by_branch: dict[str, list[Recorded]] = {}
        self._by_call: dict[tuple[str, str], list[Recorded]] = {}
        for entry in entries:
            if is_unasked(entry):
                self._by_branch.setdefault(entry.branch, []).append(entry)
                self._by_call.setdefault((entry.name, entry.digest), []).append(entry)
        self._missing = list(self._by_branch)

    def has_any(self, branch: str, name: str, digest: str) -> bool:
        """Is one left that a new effect of this branch might be?"""
        return (
            any(_has_left(self._by_branch.get(above)) for above in _line(branch))
            or _has_left(self._by_call.get((name, digest)))
            or self._has_missing_branch()
        )

    def _has_missing_branch(self) -> bool:
        missing = self._missing
        while missing and (missing[-1] in self._reappeared or not _has_left(self._by_branch[missing[-1]])):
            missing.pop()
        return bool(missing)


def _has_left(entries: list[Recorded] | None) -> bool:
    while entries and not is_unasked(entries[-1]):
        entries.pop()
    return bool(entries)


def _line(branch: str) -> Iterator[str]:
    """A branch and those above it."""
    while branch:
        yield branch
        branch = branch.rpartition("/")[0]
    yield ""
