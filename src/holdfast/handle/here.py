"""What a handle knows of the process that it is in."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.control.signals import Takes
from holdfast.model import RunId, RunRow
from holdfast.verbs.agent import Agent


class LocalExecution(Protocol):
    """An execution in this process."""

    error: BaseException | None

    @property
    def row(self) -> RunRow: ...

    @property
    def outcome(self) -> str | None: ...

    async def wait_ended(self) -> None: ...


class Here(Protocol):
    """The executor of this process."""

    agents: dict[str, Agent[..., Any]]
    started: set[RunId]  #: runs that this process was asked for
    raised: dict[RunId, BaseException] | None  #: what runs raised that failed here, if that is kept

    def local(self, run_id: RunId) -> LocalExecution | None: ...

    def takes(self, run_id: RunId) -> Takes | None: ...

    async def take_up(
        self, run_id: RunId, *, reopen: tuple[str, str] | None = None, act: tuple[str, str] | None = None
    ) -> bool: ...

    @property
    def executes(self) -> bool:
        """Does this process execute runs, or is it a client?"""
        ...
