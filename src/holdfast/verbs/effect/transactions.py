"""Effects on the user's own tables, in the database that the runs are in: never in doubt.

The transaction is the effect's: it is committed when the body has returned, together with the result, under the name of
the call. Of all attempts of a call one can commit, whoever makes them; whether one did is read, not guessed.
"""

from __future__ import annotations

import dis
from collections.abc import Awaitable, Callable, Generator
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import NotInRun, RetryLater, StoreError, Unserialisable, UsageError
from holdfast.running.scopes import scope_or_none

if TYPE_CHECKING:
    from holdfast.running.bodies import Body
    from holdfast.running.context import RunContext
    from holdfast.running.options import Options
    from holdfast.store.contract import UserTransaction

_LOST_S = 0.2  # from a lost connection to the next attempt


class transaction:
    """The transaction of the effect that is being executed, in the database of the store.

    What is done with the connection is committed together with the effect's result when its body has returned, and not
    at all if it raises. So a crash leaves no doubt: it happened, with this result, or it did not. What the body does
    besides may be repeated.

    On PostgreSQL the connection is asyncpg's, in an `async def` effect; `await hf.transaction()` gives it as well. On
    SQLite the effect is a plain `def`, and the connection the store's own: `execute(sql, parameters)` returns rows;
    nothing else is written meanwhile, so it has to be quick.

    Example:
        @hf.effect
        async def pay(order: int, amount: int) -> None:
            async with hf.transaction() as connection:
                await connection.execute("INSERT INTO payments VALUES ($1, $2)", order, amount)
    """

    def __init__(self) -> None:
        scope = scope_or_none()
        if scope is None:
            raise NotInRun(
                "hf.transaction() works inside an effect of a run only: it belongs to the call. Outside of a run, use "
                "a connection of your own."
            )
        if scope.body is None:
            raise UsageError(f"hf.transaction() was called in an agent (run {scope.run.id}): move it into an effect.")
        if scope.body.transaction is None:
            raise UsageError(
                f"hf.transaction() was called by {scope.body.name} (run {scope.run.id}), of which that was not known "
                "before it began. If it is an effect, say so: @hf.effect(transaction=True)."
            )
        self._transaction: UserTransaction = scope.body.transaction

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._transaction.begin().__await__()

    async def __aenter__(self) -> Any:
        return await self._transaction.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._transaction.spoil()

    def __enter__(self) -> Any:
        return self._transaction.begin_here()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._transaction.spoil()


class Transacted(Protocol):
    """One call of an effect that changes the user's own tables."""

    run: RunContext
    key: str


class Declared(Protocol):
    """What is declared of it."""

    body: Body
    options: Options


async def transact(
    call: Transacted,
    declared: Declared,
    transaction: UserTransaction,
    run_body: Callable[[], Awaitable[tuple[Any, Exception | None]]],
) -> tuple[Any, Exception | None, bool]:
    """Run the body in a transaction: what it returned or raised, and whether that proves that nothing happened."""
    try:
        value, error = await run_body()
        if error is not None:
            await transaction.roll_back()
            if transaction.was_lost and not isinstance(error, declared.options.failures):
                later = RetryLater(_LOST_S)  # the body is not to blame, and nothing has happened
                later.__cause__ = error
                return None, later, True
            return None, error, True
        if not transaction.has_begun:
            return value, None, True
        return await _land(call, declared, transaction, value)
    except BaseException:
        transaction.spoil()
        raise


async def _land(
    call: Transacted, declared: Declared, transaction: UserTransaction, value: Any
) -> tuple[Any, Exception | None, bool]:
    """Commit what the body did, with its result."""
    try:
        payload, _ = declared.body.coder.roundtrip(value, what=f"the result of {call.key}")
        call.run.journal.check_size(payload, f"the result of {call.key}")
    except Unserialisable as error:
        await transaction.roll_back()
        return None, error, True
    try:
        if await transaction.land(payload):
            return value, None, True
    except StoreError as error:
        return None, error, False
    return None, StoreError(f"Run {call.run.id}: {call.key} was tried again elsewhere meanwhile."), False


def uses_transaction(fn: Callable[..., Any]) -> bool:
    """Does the code of a function call `hf.transaction()` by that name, whatever `hf` is called there?"""
    code = getattr(fn, "__code__", None)
    return code is not None and _uses(code, getattr(fn, "__globals__", {}))


def _uses(code: CodeType, names: dict[str, Any]) -> bool:
    loaded: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("LOAD_GLOBAL"):
            loaded = names.get(instruction.argval)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            # A module only: looking an attribute up on anything else may run foreign code.
            is_module = isinstance(loaded, ModuleType) and loaded.__name__ == "holdfast"
            is_ours = is_module and instruction.argval == "transaction"
            loaded = transaction if is_ours else None
        if loaded is transaction:
            return True
        if instruction.opname not in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "CACHE", "PRECALL", "PUSH_NULL"):
            loaded = None
    return any(isinstance(constant, CodeType) and _uses(constant, names) for constant in code.co_consts)
