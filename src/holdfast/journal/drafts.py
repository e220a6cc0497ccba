"""What is said of a call before it is a record: the journal numbers it when a batch is formed."""

from __future__ import annotations

from holdfast.base.data import mutable

#: (kind, key, name, attempt, tick, at, took, args_digest, args, payload)
Draft = tuple[str, str, str, int, int, int, int, str, "str | None", "str | None"]


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
