"""Opening the store that the options name, without making one by accident."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from holdfast.base.config import Settings, store_url
from holdfast.cli.candidates import candidates
from holdfast.cli.failure import NOT_FOUND, Failure
from holdfast.cli.setup import Setup
from holdfast.model import RunFilter
from holdfast.store import open_store
from holdfast.store.contract import Store

T = TypeVar("T")


def path_of(setup: Setup) -> str:
    """The file that the options name."""
    return store_url(setup.db).removeprefix("sqlite:///")


def shown_url(setup: Setup) -> str:
    """The store that the options name, without its password."""
    path = path_of(setup)
    return path if "://" not in path else open_store(path, settings=Settings()).url


def check_exists(setup: Setup) -> None:
    path = path_of(setup)
    if "://" not in path and not os.path.exists(path):
        raise Failure(
            f"There is no store at {path}. `holdfast run FILE` makes one; --db PATH or HOLDFAST_URL names another.",
            NOT_FOUND,
        )


@asynccontextmanager
async def existing_store(setup: Setup, *, read_only: bool = True) -> AsyncIterator[Store]:
    """The store, opened; it must exist."""
    check_exists(setup)
    async with opened(store_url(setup.db), read_only=read_only) as store:
        yield store


@asynccontextmanager
async def opened(url: str, *, read_only: bool = False) -> AsyncIterator[Store]:
    """The store with this url; a file that does not exist is made."""
    store = open_store(url, settings=Settings())
    await store.open(read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


def with_store(setup: Setup, work: Callable[[Store], Awaitable[T]], *, read_only: bool = True) -> T:
    """Open the store, do the work, close it."""

    async def go() -> T:
        async with existing_store(setup, read_only=read_only) as store:
            return await work(store)

    return asyncio.run(go())


def complete_run(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids for the shell's completion, of the store that a command names first, if it does; none if there is none."""
    setup = Setup(db=ctx.params["from_url"]) if "from_url" in ctx.params else ctx.find_root().obj or Setup()

    async def find(store: Store) -> list[CompletionItem]:
        rows = await store.runs(RunFilter(id_prefix=incomplete or None, limit=30))
        return candidates((row.id, f"{row.agent} {row.status}") for row in rows)

    try:
        return with_store(setup, find)
    except Exception:  # the shell has no place for errors while the user types
        return []


def run_argument(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.argument("run", required=required, shell_complete=complete_run)
