"""What is declared of an effect: how it is called, and how a doubt of it is settled."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from holdfast.base.data import mutable
from holdfast.journal.recovery import OnDoubt
from holdfast.running.bodies import Body
from holdfast.running.options import Options


class RuledEffect(Protocol):
    """An effect with its options."""

    name: str
    explicit_key: str | None
    body: Body
    options: Options
    rules: Rules
    undoes: str | None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]: ...

    def taking_back(self, idempotency_key: str) -> RuledEffect: ...


@mutable
class Rules:
    """How an effect in doubt is settled; shared by all option variants of the effect."""

    on_doubt: OnDoubt
    settle_us: int
    is_transaction: bool = False  #: it changes the user's own tables, next to the runs
    is_closure: bool = False  #: it acts on what it closes over, which recorded arguments would not change
    verify: Body | None = None
    undo: RuledEffect | None = None
