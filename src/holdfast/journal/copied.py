"""The calls of a fork that it was made with: what is left of them says whose randomness the code gets.

`uuid4` and `rng` follow from a nonce, and nothing of them is recorded. What the original made of them is in the
arguments and results of the copied calls, so they have to come out the same as long as such calls are ahead. After the
last one they have to differ from the original's, which has gone its own way.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.journal.forks import Origin, nonces_in, origin_in
from holdfast.journal.replay import Entry, Replay
from holdfast.model import Record, RunRow


class Copied:
    """Of one execution of a fork. `nonces`: whose they are, up to which record."""

    def __init__(self, origin: Origin, nonces: Sequence[tuple[int, str]], replay: Replay) -> None:
        self.origin = origin
        self._nonces = nonces
        self._reappeared = replay.reappeared
        self._left: dict[str, list[Entry]] = {}  # by branch, the earliest last
        last = nonces[-1][0] if nonces else 0
        for entry in sorted(replay.entries.values(), key=lambda entry: -entry.seq):
            if entry.seq <= last:
                self._left.setdefault(entry.branch, []).append(entry)

    def nonce(self, branch: str, *, is_closed: bool) -> str | None:
        """The nonce that is in force in a branch; None: the run's own, since no copied call is left there.

        A branch that the code has yet to create counts as part of the one that creates it: what is made of the nonce
        here may be handed to it. The same goes for what comes before the loop, if that has begun (`is_closed`).
        """
        ahead = [seq for other in self._left if self._is_of(other, branch) and (seq := self._earliest(other))]
        if is_closed and not branch and self._nonces:
            ahead.append(self._nonces[-1][0])
        earliest = min(ahead, default=None)
        return None if earliest is None else next(nonce for upto, nonce in self._nonces if earliest <= upto)

    def _is_of(self, other: str, branch: str) -> bool:
        if other == branch:
            return True
        prefix = f"{branch}/" if branch else ""
        if not other.startswith(prefix):
            return False
        created = prefix + other[len(prefix) :].partition("/")[0]
        return created not in self._reappeared

    def _earliest(self, branch: str) -> int | None:
        left = self._left[branch]
        while left and left[-1].claimed:
            left.pop()
        return left[-1].seq if left else None


def copied_in(row: RunRow, created: Record, replay: Replay) -> Copied | None:
    """What a run was made with, if it is a fork."""
    origin = origin_in(created)
    return None if origin is None else Copied(origin, nonces_in(row.nonce), replay)
