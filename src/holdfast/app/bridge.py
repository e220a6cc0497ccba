"""`run()`: the one bridge from ordinary code, and `arun()`, the same where an event loop runs already."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike, fspath
from typing import TypeVar

from holdfast.app.app import Holdfast
from holdfast.app.interruption import Interruption, is_default, left_safe
from holdfast.app.options import AppOptions
from holdfast.base.characters import escaped
from holdfast.base.config import store_url
from holdfast.base.hints import about_store, resume_hint
from holdfast.base.tracebacks import show_trimmed
from holdfast.errors import UsageError
from holdfast.handle.run import Run
from holdfast.history.needs import Needs
from holdfast.model import FINAL
from holdfast.running.scopes import scope_or_none
from holdfast.verbs.agent import Call, check_call

R = TypeVar("R")


def run(
    call: Call[R], *, id: str | None = None, thread_id: str | None = None, url: str | PathLike[str] | None = None
) -> R:
    """Execute an agent and return its result: start it, or go on with the run that has this id.

    Kill the process and call it again with the same id: it goes on where it was. A run that failed is opened again,
    because running a repaired script is the explicit act. If a person has to decide, NeedsHuman says what to do.

    Example: `print(hf.run(newsletter("tides"), id="issue-7"))`
    """
    started: list[Run[R]] = []
    interruption = Interruption(lambda: _interrupted(call, started, url=url))
    work = _run(call, "hf.run()", run_id=id, thread_id=thread_id, url=url, on_start=started.append)
    try:
        if _has_loop():
            work.close()
            name = call.agent.name if isinstance(call, Call) else "my_agent"
            if scope_or_none() is not None:
                raise UsageError(
                    f"hf.run() is for scripts, and this is inside a run: `await {name}(…)` is part of it, and "
                    f"`await hf.start({name}(…))` starts a run of its own."
                )
            raise UsageError(
                "hf.run() was called where an event loop runs already, as in a notebook: use "
                f"`await hf.arun({name}(…), id=…)` there, or `async with hf.connect(…) as app:` and app.start()."
            )
        return asyncio.run(interruption.guard(work) if is_default() else work)
    except BaseException as error:
        shown = KeyboardInterrupt(interruption.told()) if interruption.times else error
        show_trimmed(shown)
        if shown is error:
            raise
    raise shown


def _has_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def _interrupted(call: Call[R], started: Sequence[Run[R]], *, url: str | PathLike[str] | None) -> str:
    """What the command says, too."""
    if not started:
        return "Interrupted."
    about_store(url if url is None else fspath(url))
    return f"Interrupted; {left_safe(started[0].id, resume_hint(started[0].id, call.agent._source))}"


async def arun(
    call: Call[R], *, id: str | None = None, thread_id: str | None = None, url: str | PathLike[str] | None = None
) -> R:
    """What `run` does, where an event loop runs already (a notebook): start a run, or go on with that of this id.

    Execute the cell again, after a restart of the kernel too: it goes on where it was.

    Example: `print(await hf.arun(newsletter("tides"), id="issue-7"))`
    """
    return await _run(call, "hf.arun()", run_id=id, thread_id=thread_id, url=url, on_start=lambda run: None)


async def _run(
    call: Call[R],
    verb: str,
    *,
    run_id: str | None,
    thread_id: str | None,
    url: str | PathLike[str] | None,
    on_start: Callable[[Run[R]], object],
) -> R:
    check_call(call, verb)
    app = Holdfast(store_url(url), AppOptions((call.agent,), only_own=True))
    async with app:
        handle, has_failed = await app._here.start_again(call, run_id=run_id, thread_id=thread_id)
        on_start(handle)
        if has_failed:
            await handle.retry(note="run again")
        elif await handle.status() not in FINAL:
            await handle.resume()
        told: set[str] = set()

        def tell(needs: Needs) -> None:
            for need in needs.open:
                if need.key not in told and not needs.is_far:
                    told.add(need.key)
                    sys.stderr.write(f"{escaped(need.text)}\n")

        return await handle._result_or_needs(tell=tell)
