"""What is to be done once a transaction of the user's own is committed: left there, and done by a worker."""

from __future__ import annotations

import json
from typing import Any

from holdfast.base.clock import ready_us
from holdfast.base.ids import new_uuid
from holdfast.model import Definition
from holdfast.store.contract import Store

#: The kind of definitions that say what.
OUTBOX = "outbox"


async def later(store: Store, transaction: Any, what: dict[str, Any]) -> None:
    """Have a worker do something once a transaction of the user's own is committed; nothing, if it never is."""
    await store.define([Definition(OUTBOX, f"o_{new_uuid().hex}", json.dumps(what), 1, ready_us())], within=transaction)
