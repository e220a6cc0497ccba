"""Acting on a store without executing anything: what people do to runs, questions, queues and schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from holdfast.app import Holdfast, connect
from holdfast.app.served import Served
from holdfast.cli.candidates import candidates
from holdfast.cli.setup import Setup
from holdfast.cli.stores import check_exists, with_store
from holdfast.store.contract import Store

T = TypeVar("T")

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def client(setup: Setup) -> Holdfast:
    """An app that knows no agents, on the store, which must exist, or on the server."""
    check_exists(setup)
    return connect(setup.db) if setup.served is None else Served(setup.served)


def with_app(setup: Setup, work: Callable[[Holdfast], Awaitable[T]]) -> T:
    """Open an app that knows no agents, do the work, close it."""

    async def go() -> T:
        async with client(setup) as app:
            return await work(app)

    return asyncio.run(go())


def complete_defined(kind: str) -> Complete:
    """Completion of the names of what workers share: queues, schedules, triggers."""

    async def find(store: Store, incomplete: str) -> list[CompletionItem]:
        found = await store.definitions(kind)
        return candidates((each.name, "") for each in found if each.name.startswith(incomplete))

    return _completion(find)


def _completion(find: Callable[[Store, str], Awaitable[list[CompletionItem]]]) -> Complete:
    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        setup = ctx.find_root().obj or Setup()
        try:
            return with_store(setup, lambda store: find(store, incomplete))
        except Exception:  # the shell has no place for errors while the user types
            return []

    return complete


async def _open_questions(store: Store, incomplete: str) -> list[CompletionItem]:
    found = await store.questions(id_prefix=incomplete or None, limit=30)
    return candidates((each.id, each.run_id) for each in found)


#: Completion of the ids of open questions.
complete_question: Complete = _completion(_open_questions)


async def _agents(store: Store, incomplete: str) -> list[CompletionItem]:
    known = {*await store.ended_agents(), *(each.name for each in await store.definitions("agent"))}
    return candidates((name, "") for name in sorted(known) if name.startswith(incomplete))


#: Completion of the names of agents.
complete_agent: Complete = _completion(_agents)
