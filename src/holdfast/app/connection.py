"""`connect()`: an app from what a caller gives."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any

from holdfast.app.app import Holdfast
from holdfast.app.options import AppOptions
from holdfast.base.config import Settings, is_server, store_url
from holdfast.errors import UsageError
from holdfast.verbs.agent import Agent


def connect(
    url: str | PathLike[str] | None = None,
    *,
    agents: Agent[..., Any] | Iterable[Agent[..., Any]] = (),
    concurrency: int = 100,
    queues: Iterable[str] | None = None,
    settings: Settings | None = None,
) -> Holdfast:
    """An app on a store; use it with `async with`. With `agents` this process executes, and takes up what others left.

    Without `agents` (one, or several) it is a client: runs that it starts wait for a worker. `url` is a path,
    sqlite:///path or postgresql://…; the default is $HOLDFAST_URL, else ./.holdfast/holdfast.db. At most `concurrency`
    runs execute here at once; runs are taken from these `queues` only, if they are given.

    Example:
        async with hf.connect(agents=[newsletter]) as app:
            run = await app.start(newsletter("tides"), id="issue-7")
            print(await run.result())
    """
    named = store_url(url)
    if is_server(named):
        raise UsageError("hf.connect() opens a store. A server is for `holdfast --url`, and for HTTP: docs/server.md.")
    only = None if queues is None else tuple(queues)
    return Holdfast(named, AppOptions(_several(agents), settings or Settings(), concurrency=concurrency, queues=only))


def _several(agents: Agent[..., Any] | Iterable[Agent[..., Any]]) -> tuple[Agent[..., Any], ...]:
    return tuple(agents) if isinstance(agents, Iterable) else (agents,)
