"""Reading a store once, from code that is not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.base.config import Settings
from holdfast.errors import RunNotFound
from holdfast.journal.blobs import stored_text
from holdfast.model import Record, RunId, RunRow
from holdfast.store import open_store
from holdfast.store.contract import Store

T = TypeVar("T")


def in_own_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine, run on a loop and a thread of its own: the caller may have a loop running."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(make()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="holdfast-testing")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def read(url: str, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """What `work` finds in the store, opened read-only."""

    async def opened() -> T:
        store = open_store(url, settings=Settings())
        await store.open(read_only=True)
        try:
            return await work(store)
        finally:
            await store.close()

    return in_own_loop(opened)


def read_row(url: str, run_id: str) -> RunRow | None:
    return read(url, lambda store: store.run(RunId(run_id)))


def read_run(url: str, run_id: str) -> tuple[RunRow, list[Record]]:
    loaded = read(url, lambda store: store.load(RunId(run_id)))
    if loaded is None:
        raise RunNotFound(f"There is no run {run_id} in {url}.")
    return loaded


def read_text(url: str, run_id: str, payload: str | None) -> str:
    """The JSON text of a stored value, wherever it lies."""
    return read(url, lambda store: stored_text(store, RunId(run_id), payload))
