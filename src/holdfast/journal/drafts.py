"""What is known of a call that began, before its outcome is."""

from __future__ import annotations

from typing import Protocol

from holdfast.base.data import mutable


@mutable
class OpenCall:
    """A call that began; its `started` record is written only if a batch is formed before its outcome."""

    key: str
    name: str
    attempt: int
    at: int
    args_digest: str
    args: str | None
    payload: str | None = None
    written: bool = False


class Streaming(Protocol):
    """Who hears of what the journal is about to say, to add what bodies have written."""

    def begun(self, key: str) -> None:
        """An attempt of this call begins."""
        ...

    def told(self, kind: str, key: str, payload: str | None) -> None:
        """This record is about to be added."""
        ...
