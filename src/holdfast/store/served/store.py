"""`ServedStore`: the reading half of a store, behind a server. What changes something is the server's to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from holdfast.base.clock import now_us
from holdfast.errors import CorruptJournal, StoreCorrupt, StoreError, UsageError
from holdfast.model import Mail, Message, Record, RunId, RunRow, ThreadId
from holdfast.store.contract import Store
from holdfast.store.home import Home
from holdfast.store.looks import LOOKS, look_of
from holdfast.store.served.line import API, Line, Refusal
from holdfast.store.surveys import Outline, Surveys
from holdfast.version import VERSION

T = TypeVar("T")

_PAGE: Final = 1000
_FEW: Final = 8  #: chunks and blobs at once, which are large


class _Looking:
    """Has the looks of a part of the contract as methods."""

    def __init__(self, line: Line, part: str = "") -> None:
        self._line = line
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if f"{self._part}{name}" not in LOOKS:
            raise UsageError(f"This cannot be done to a store behind a server ({name}).")
        return partial(self._look, f"{self._part}{name}")

    async def _look(self, name: str, *args: Any, **named: Any) -> Any:
        look = look_of(name)
        try:
            told = await self._line.ask("POST", f"{API}/looks/{name}", {"given": look.asked(args, named)})
        except Refusal as refused:
            raise error_of(refused) from None
        return look.gives.loads(told["result_json"])


class _Surveys(_Looking):
    def commits(self) -> bytes | None:
        return None

    async def outline(self, run_id: RunId, *, after: int = 0, limit: int | None = None) -> Outline | None:
        """As `load`: the first row counts, and the records that it knows of."""
        first: Outline | None = None

        async def page(last: Record | None, most: int) -> list[Record]:
            nonlocal first
            seq = after if last is None else last.seq
            found: Outline | None = await self._look("surveys.outline", run_id, after=seq, limit=most)
            first = first or found
            return [] if found is None else found.records

        records: list[Record] = await _pages(page, limit)
        if first is None:
            return None
        return Outline(first.row, [each for each in records if each.seq <= first.row.head_seq])


class ServedStore(_Looking):
    """What can be read of a store, through a server. Use it as a `Store` (`served_store`)."""

    durability = "full"
    trouble: str | None = None
    failure: StoreError | None = None

    def __init__(self, url: str) -> None:
        super().__init__(Line(url))
        self.home: Home | None = None
        self.surveys = cast("Surveys", _Surveys(self._line, "surveys."))
        self.url = self._line.url

    @property
    def line(self) -> Line:
        return self._line

    async def open(self, *, read_only: bool = False) -> None:
        """Look whether a Holdfast server of this version answers there, and lets us in."""
        try:
            told = await self._line.ask("GET", f"{API}/store")
        except Refusal as refused:
            raise error_of(refused) from None
        found = told.get("holdfast") if isinstance(told, dict) else None
        if found is None:
            raise UsageError(f"What answers at {self.url} is no Holdfast server.")
        if found != VERSION:
            raise UsageError(f"{self.url} is Holdfast {found}, and this is {VERSION}: they have to be the same.")

    async def close(self) -> None:
        self._line.close()

    # what may be long comes in parts

    async def records(self, run_id: RunId, *, after: int = 0, limit: int | None = None) -> list[Record]:
        async def page(last: Record | None, most: int) -> list[Record]:
            seq = after if last is None else last.seq
            found: list[Record] = await self._look("records", run_id, after=seq, limit=most)
            return found

        return await _pages(page, limit)

    async def mail(self, run_id: RunId, *, after: int, limit: int | None = None) -> list[Mail]:
        async def page(last: Mail | None, most: int) -> list[Mail]:
            number = after if last is None else last.number
            found: list[Mail] = await self._look("mail", run_id, after=number, limit=most)
            return found

        return await _pages(page, limit)

    async def load(self, run_id: RunId) -> tuple[RunRow, list[Record]] | None:
        """Records never change: those that the row knows of are what there was at its moment."""
        row: RunRow | None = await self._look("run", run_id)
        if row is None:
            return None
        records = await self.records(run_id, limit=row.head_seq)
        if len(records) < row.head_seq:  # it was pruned meanwhile, or is damaged: then it is so the second time as well
            row = await self._look("run", run_id)
            return None if row is None else (row, await self.records(run_id, limit=row.head_seq))
        return row, records

    async def messages(
        self, thread_id: ThreadId, *, after: int = 0, upto: int | None = None, limit: int = 1000, newest: bool = False
    ) -> list[Message]:
        async def page(last: Message | None, most: int) -> list[Message]:
            begin = after if last is None or newest else last.number
            end = upto if last is None or not newest else last.number - 1
            found: list[Message] = await self._look(
                "messages", thread_id, after=begin, upto=end, limit=most, newest=newest
            )
            return found

        return await _pages(page, limit)

    async def chunks(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._few("chunks", run_id, digests)

    async def blobs(self, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._few("blobs", run_id, digests)

    async def _few(self, name: str, run_id: RunId, digests: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for begin in range(0, len(digests), _FEW):
            found |= await self._look(name, run_id, list(digests[begin : begin + _FEW]))
        return found

    def ring(self) -> None:
        """The server rings for what it does."""

    def wall_clock_us(self) -> int:
        return now_us()


def served_store(url: str) -> Store:
    """The store behind a server, as far as it can be read."""
    return cast("Store", ServedStore(url))


def error_of(refused: Refusal) -> Exception:
    """What the store would have raised, were it here."""
    match refused.kind:
        case "quarantined":
            seq = refused.more.get("seq")
            run_id = str(refused.more.get("run", ""))
            return CorruptJournal(refused.detail, run_id=run_id, seq=seq if isinstance(seq, int) else None)
        case "store_damaged":
            return StoreCorrupt(refused.detail)
        case _:
            return UsageError(refused.detail)


async def _pages(page: Callable[[T | None, int], Awaitable[list[T]]], limit: int | None) -> list[T]:
    found: list[T] = []
    while limit is None or len(found) < limit:
        most = _PAGE if limit is None else min(_PAGE, limit - len(found))
        some = await page(found[-1] if found else None, most)
        found += some
        if len(some) < most:
            break
    return found
