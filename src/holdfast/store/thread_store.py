"""The part of a store's contract that is about threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.model import Fence, Message, Said, Saying, ThreadId, ThreadRow

#: No message has this number.
ENDLESS = 2**62


class ThreadStore(Protocol):
    """What was said in threads."""

    async def say(self, saying: Saying, *, fence: Fence | None = None) -> Said:
        """Store messages under the next numbers of their thread, which is made if there is none; or, if something was
        said there under this dedup id before, nothing.

        `fence`: for which run it is done; raises Fenced if that one is somebody else's.
        """
        ...

    async def thread(self, thread_id: ThreadId) -> ThreadRow | None: ...

    async def threads(self, *, id_prefix: str = "", after: str = "", limit: int = 200) -> list[ThreadRow]:
        """In the order of ids, from behind `after` on."""
        ...

    async def messages(
        self, thread_id: ThreadId, *, after: int = 0, upto: int | None = None, limit: int = 1000, newest: bool = False
    ) -> list[Message]:
        """Those with numbers behind `after` and up to `upto`: the first ones in order, or the newest, backwards."""
        ...

    async def idle_threads(self, *, before: int, strays: bool, limit: int) -> list[ThreadId]:
        """Threads in which nothing was said since a time, and that no run is part of which has anything left.

        `strays`: also those that no run was ever part of.
        """
        ...

    async def forget_thread(self, thread_id: ThreadId, *, before: int, strays: bool) -> bool:
        """Remove a thread with all that was said in it, in one commit, if it is still idle."""
        ...

    async def put_messages(self, messages: Sequence[Message], row: ThreadRow) -> bool:
        """Take over messages of another store, under their numbers, and what the thread's row is with them.

        False: the thread does not end right before the first of them; nothing was changed.
        """
        ...
