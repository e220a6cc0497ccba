"""What an editor and a type checker see of an effect: a function with rules of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from holdfast.durations import Duration

if TYPE_CHECKING:
    from holdfast.running.bodies import BoundCall, CallMethod
    from holdfast.running.options import Retry
    from holdfast.verbs.effect.settling import Verdict

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Effect(Protocol[P, R]):
    """An async function that changes the world; interrupted calls are settled, never repeated blindly."""

    __name__: str

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    # In a class it is a method. An option variant of it is a function again, so a bound one has no options.
    @overload
    def __get__(self: CallMethod[type[S], Q, T], instance: S | None, owner: type[S], /) -> BoundCall[Q, T]: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Effect[P, R]: ...
    @overload
    def __get__(self: CallMethod[S, Q, T], instance: S, owner: type | None = None, /) -> BoundCall[Q, T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None, /) -> Effect[P, R]: ...

    def with_options(
        self, *, key: str | None = None, retries: int | Retry | None = None, timeout: Duration | None = None
    ) -> Effect[P, R]:
        """The same effect with other options; `key=` names one call explicitly, once per run.

        Example: `await pay.with_options(key=f"invoice-{number}")(amount)`
        """
        ...

    @overload
    def verify(self, fn: Callable[P, Verdict[R]], /) -> Callable[P, Verdict[R]]: ...
    @overload
    def verify(
        self, fn: Callable[P, Coroutine[Any, Any, Verdict[R]]], /
    ) -> Callable[P, Coroutine[Any, Any, Verdict[R]]]:
        """Declare how to find out whether a call that was cut off happened.

        Example:
            @send_email.verify
            async def find_sent(to: str, body: str) -> hf.Verdict[str]:
                sent = await mailer.find(key=hf.this_step().idempotency_key)
                return hf.landed(sent) if sent else hf.not_landed()
        """
        ...

    @overload
    def undo(self, fn: Callable[Concatenate[R | None, P], None], /) -> Callable[Concatenate[R | None, P], None]: ...
    @overload
    def undo(
        self, fn: Callable[Concatenate[R | None, P], Coroutine[Any, Any, None]], /
    ) -> Callable[Concatenate[R | None, P], Coroutine[Any, Any, None]]:
        """Declare how to take a call back: for sagas and `on_doubt="undo"`. It must be safe to repeat.

        The first argument is the effect's result, or None if it is in doubt whether there is one.

        Example:
            @book_hotel.undo
            async def cancel_hotel(booking: str | None, city: str) -> None:
                await hotels.cancel(booking, key=hf.this_step().undoes)
        """
        ...


class EffectDecorator(Protocol):
    """What `effect(...)` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Effect[P, R]: ...
