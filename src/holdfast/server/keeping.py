"""How long runs are kept, as people say through the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from holdfast.app import Holdfast
from holdfast.model import Actor, Status
from holdfast.server.objects import plain


class Keeping:
    """Rules of retention, and pruning."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    async def rules(self) -> list[dict[str, Any]]:
        """For how long runs are kept, by agent; `keep_s` None: for ever."""
        return [
            {
                "agent": each.agent,
                "keep_s": None if each.keep is None else each.keep.total_seconds(),
                "last_at": plain(each.last_at),
                "last_runs": each.last_runs,
            }
            for each in await self._app.retention()
        ]

    async def retain(self, agent: str, keep_s: float | None, *, by: Actor, note: str) -> None:
        """`keep_s` None: for ever."""
        await self._app.retain(agent, keep=timedelta.max if keep_s is None else keep_s, by=by, note=note)

    async def forget_rule(self, agent: str, *, by: Actor, note: str) -> None:
        await self._app.retain(agent, keep=None, by=by, note=note)

    async def prune(
        self,
        older_than_s: float,
        *,
        agent: str | None,
        status: Sequence[Status],
        dry_run: bool,
        forget: bool,
        by: Actor,
        note: str,
    ) -> dict[str, Any]:
        """What was removed, or would be."""
        found = await self._app.prune(
            older_than=older_than_s, agent=agent, status=status, dry_run=dry_run, forget=forget, by=by, note=note
        )
        return asdict(found)
