"""Which branch of which run the current code is in: one context variable. What is in it, `scopes` knows."""

from __future__ import annotations

import contextvars
from typing import Any

#: A `Scope`, or a `Lineless` one; None: the code is in no run.
SCOPE: contextvars.ContextVar[Any] = contextvars.ContextVar("holdfast_scope", default=None)


def outside() -> contextvars.Context:
    """A copy of the current context that belongs to no run."""
    context = contextvars.copy_context()
    context.run(SCOPE.set, None)
    return context
