"""What the API shows of many runs at once: counts, histograms, agents. What was just counted is not counted again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.app import Holdfast
from holdfast.base.clock import as_time, monotonic_us, now_us
from holdfast.model import FINAL, Status
from holdfast.server.objects import as_us, stamp
from holdfast.server.problems import Problem
from holdfast.server.which import Which
from holdfast.store.contract import Store
from holdfast.store.surveys import counts, is_indexed

#: Counting ends here.
CAP: Final = 10_000
_BINNED: Final = 50_000  # of each status
_SPAN: Final = timedelta(days=1)
_COUNTED_US: Final = 1_000_000
_MANY_US: Final = 10_000_000  # for how long a count of many is good
_MANY: Final = 50_000
_KEPT: Final = 100


class Surveys:
    """Counts the runs of an app's store."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._known: dict[str, tuple[int, dict[str, Any]]] = {}

    @property
    def _store(self) -> Store:
        return self._app._store

    async def counts(self, which: Which) -> dict[str, Any]:
        """How many runs fit, by status, counted up to a cap; at most a second old."""
        mark = _mark("counts", which)
        if (known := self._kept(mark)) is not None:
            return known
        dead = frozenset(await self._store.dead_workers()) if which.cut_off else frozenset()
        if which.cut_off and not dead:
            return {"status": {}, "capped_at": CAP}
        found, cap = await counts(self._store.surveys, which.filter(dead), cap=CAP)
        told = {status.value: count if count <= cap else f"{cap}+" for status, count in sorted(found.items())}
        return self._keep(mark, {"status": told, "capped_at": cap}, _COUNTED_US)

    async def histogram(self, which: Which, *, bins: int) -> dict[str, Any]:
        """When the runs that fit were created: without a time, those of the last day."""
        until = which.until or as_time(now_us())
        since = which.since or until - _SPAN
        if not since < until:
            raise Problem("invalid_parameter", "`since` has to be before `until`.")
        span = as_us(until) - as_us(since)
        width = max(1, -(-span // bins))
        mark = _mark(f"histogram {bins}", _steadied(which, since, until, width=width))
        if (known := self._kept(mark)) is not None:
            return known
        dead = frozenset(await self._store.dead_workers()) if which.cut_off else frozenset()
        wanted = replace(which.filter(dead), since=as_us(since), until=as_us(until))
        found = (
            {} if which.cut_off and not dead else await self._store.surveys.histogram(wanted, width=width, most=_BINNED)
        )
        table = [{"done": 0, "failed": 0, "cancelled": 0, "unfinished": 0} for _ in range(bins)]
        for status, each in found.items():
            column = status.value if status in FINAL else "unfinished"
            for place, count in each.items():
                table[min(max(place, 0), bins - 1)][column] += count
        total = _totals(found)
        is_exact = max(total.values(), default=0) < _BINNED if is_indexed(wanted) else sum(total.values()) <= 1000
        told = {
            "from": stamp(as_us(since)),
            "to": stamp(as_us(until)),
            "bin_s": width / 1e6,
            "bins": table,
            "is_exact": is_exact,
        }
        return self._keep(mark, told, _MANY_US if sum(total.values()) > _MANY else _COUNTED_US)

    async def agents(self) -> list[dict[str, Any]]:
        """The names of agents, with what workers said of them."""
        declared = {each.name: json.loads(each.body) for each in await self._store.definitions("agent")}
        return [
            {
                "name": name,
                "first": declared.get(name, {}).get("first"),
                "input_schema": declared.get(name, {}).get("takes"),
                "signals": sorted(declared.get(name, {}).get("signals") or {}),
                "takes_interrupts": bool(declared.get(name, {}).get("interrupts")),
                "queue": declared.get(name, {}).get("queue"),
            }
            for name in sorted({*declared, *await self._store.surveys.agents()})
        ]

    def _kept(self, mark: str) -> dict[str, Any] | None:
        until, told = self._known.get(mark, (0, {}))
        return told if monotonic_us() < until else None

    def _keep(self, mark: str, told: dict[str, Any], for_us: int) -> dict[str, Any]:
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[mark] = (monotonic_us() + for_us, told)
        return told


def _steadied(which: Which, since: datetime, until: datetime, *, width: int) -> Which:
    """A span that moves with the clock is the same one as long as it moves by less than a bin."""
    if which.since is not None and which.until is not None:
        return which
    step = timedelta(microseconds=width)
    epoch = as_time(0)
    return replace(which, since=epoch + (since - epoch) // step * step, until=epoch + (until - epoch) // step * step)


def _totals(found: Mapping[Status, Mapping[int, int]]) -> dict[Status, int]:
    return {status: sum(bins.values()) for status, bins in found.items()}


def _mark(what: str, which: Which) -> str:
    return what + json.dumps(which.facts, sort_keys=True, default=str)
