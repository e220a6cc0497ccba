"""How an app is opened and closed: its store, and what it is made of in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.app.options import AppOptions
from holdfast.errors import UsageError
from holdfast.handle.acts import is_in_run
from holdfast.store.contract import Store
from holdfast.store.home import Home
from holdfast.worker.hiding import hide_url

if TYPE_CHECKING:
    from holdfast.app.parts import Parts


async def open_parts(store: Store, options: AppOptions) -> Parts:
    """The parts of an app, with its store open; if they cannot be, the store is closed again."""
    # Not at the top: schedules and triggers take as long to load as the rest of the worker.
    from holdfast.app.parts import Parts

    if options.agents and is_in_run():
        raise UsageError("An app that executes runs was opened inside a run. Open one without agents=, to look.")
    await store.open(read_only=options.reads_only)
    if options.settings.hide_url:
        hide_url()
    store.home = Home()
    parts = Parts(store, options)
    try:
        await parts.open()
    except BaseException:
        store.home = None
        await store.close()
        raise
    return parts


async def close_parts(store: Store, parts: Parts | None) -> None:
    """Close them, and the store whatever becomes of that; None: they are closed."""
    try:
        if parts is not None:
            await parts.close()
    finally:
        store.home = None
        await store.close()
