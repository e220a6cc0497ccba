"""What the bodies of a run put out besides their results: recorded with the outcome of the attempt, in one append.

An attempt that fails, or is cut off, leaves nothing: what it put out was never said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.base.data import data, mutable
from holdfast.journal.files import versions_of
from holdfast.journal.journal import Journal
from holdfast.model import Kind, NoteKind, RunId
from holdfast.store.files import FileStore


@data
class OutputNote:
    """A note that is recorded with an outcome."""

    kind: NoteKind
    digest: str
    payload: str


class AttemptOutputs:
    """Of one attempt."""

    __slots__ = ("_attempt", "_said", "_then")

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._said: list[OutputNote] = []
        self._then: list[Callable[[bool], None]] = []

    def add(self, said: OutputNote) -> None:
        """Have it recorded with the outcome."""
        self._said.append(said)

    def then(self, tell: Callable[[bool], None]) -> None:
        """Have it told whether that was recorded: not, if the attempt fails."""
        self._then.append(tell)

    def record(self, journal: Journal, key: str) -> None:
        """The outcome of the attempt is recorded next, in the same append."""
        for said in self._said:
            journal.add(
                Kind.noted,
                key,
                said.kind,
                attempt=self._attempt,
                digest=said.digest,
                payload=said.payload,
                soon=False,
            )
        self._end(True)

    def drop(self) -> None:
        """The attempt has failed."""
        self._end(False)

    def _end(self, kept: bool) -> None:
        told, self._then, self._said = self._then[::-1], [], []
        for tell in told:
            tell(kept)


# versions of artifacts


@mutable
class _Held:
    version: int
    holders: int


class Versions:
    """Of one artifact: the same bytes are the same version.

    Those of attempts under way are held: two of them at once do not get the same number.
    """

    def __init__(self, recorded: dict[str, int]) -> None:
        self._recorded = recorded
        self._held: dict[str, _Held] = {}

    def hold(self, identity: str) -> int:
        """The version that these bytes are."""
        if identity in self._recorded:
            return self._recorded[identity]
        held = self._held.get(identity)
        if held is None:
            taken = [*self._recorded.values(), *(each.version for each in self._held.values())]
            held = self._held[identity] = _Held(max(taken, default=0) + 1, 0)
        held.holders += 1
        return held.version

    def keep(self, identity: str, version: int) -> None:
        """It is recorded."""
        self._recorded.setdefault(identity, version)
        self._held.pop(identity, None)

    def drop(self, identity: str) -> None:
        """The attempt that held it has failed."""
        held = self._held.get(identity)
        if held is not None:
            held.holders -= 1
            if held.holders <= 0:
                del self._held[identity]


class HeldWorkspaces(Protocol):
    """What an execution needs of its workspaces (`workspaces.py`), which most do not have."""

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any | None: ...

    def let_go(self, *, is_over: bool) -> None: ...


class Outputs:
    """The artifacts and workspaces of a run, as far as this execution has asked for them."""

    __slots__ = ("_run_id", "_store", "_versions", "workspaces")

    def __init__(self, store: FileStore, run_id: RunId) -> None:
        self._store = store
        self._run_id = run_id
        self._versions: dict[str, Versions] = {}
        self.workspaces: HeldWorkspaces | None = None  #: once the code has asked for one

    async def versions(self, name: str) -> Versions:
        """Read from the journal as it is stored: a run that goes on from a checkpoint has not loaded all of it."""
        found = self._versions.get(name)
        if found is None:
            recorded = await versions_of(self._store, self._run_id, name)
            found = self._versions.setdefault(name, Versions(recorded))
        return found

    def use(self, workspaces: HeldWorkspaces) -> None:
        """The code asks for its first workspace."""
        self.workspaces = workspaces

    def let_go(self, *, is_over: bool) -> None:
        """The execution is over; is the run?"""
        if self.workspaces is not None:
            self.workspaces.let_go(is_over=is_over)
            self.workspaces = None
