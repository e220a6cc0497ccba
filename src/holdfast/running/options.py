"""How steps and effects are executed: their names, their retries, their timeouts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.base.clock import in_seconds
from holdfast.base.data import data
from holdfast.durations import Duration
from holdfast.errors import UsageError

_NAME = r"[^\W\d][\w.\- ]{0,99}"


@data
class Retry:
    """How often and how patiently a failed attempt is repeated.

    `attempts` counts repetitions: `Retry(3)` tries at most four times. The wait before repetition n is
    `first * factor**(n-1)`, at most `most` (seconds, or a timedelta), varied by `jitter` (a share of it).

    Example: `@hf.step(retries=hf.Retry(5, first=0.2, most=timedelta(minutes=5)))`
    """

    attempts: int = 3
    first: Duration = 0.5
    factor: float = 2.0
    most: Duration = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        in_seconds(self.first, "hf.Retry(first=)")
        in_seconds(self.most, "hf.Retry(most=)")

    def _delay_s(self, failed: int) -> float:
        """Seconds to wait after the `failed`-th failure."""
        first_s, most_s = in_seconds(self.first, "hf.Retry(first=)"), in_seconds(self.most, "hf.Retry(most=)")
        base = min(first_s * self.factor ** min(failed - 1, 64), most_s)
        chance = int.from_bytes(os.urandom(4), "big") / 2**32  # the module `random` would be loaded for nothing else
        return base * (1 + self.jitter * (2 * chance - 1))


@data
class Options:
    """How a step or effect is executed."""

    name: str
    retries: Retry
    timeout_s: float | None
    retry_on: tuple[type[BaseException], ...]
    raises: tuple[type[BaseException], ...]
    explicit_key: str | None = None

    @classmethod
    def checked(
        cls,
        fn: Callable[..., Any],
        *,
        name: str | None,
        retries: int | Retry,
        timeout: Duration | None,
        retry_on: type[BaseException] | tuple[type[BaseException], ...],
        raises: type[BaseException] | tuple[type[BaseException], ...],
    ) -> Options:
        """What a decorator was given; UsageError says what of it cannot be."""
        return cls(
            name=checked_name(name, fn),
            retries=as_retry(retries),
            timeout_s=None if timeout is None else in_seconds(timeout, "timeout="),
            retry_on=as_types(retry_on, "retry_on"),
            raises=as_types(raises, "raises"),
        )

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """The exceptions of an effect that prove that nothing happened; they come back as themselves."""
        return (*self.raises, *self.retry_on)

    def changed(self, *, key: str | None, retries: int | Retry | None, timeout: Duration | None) -> Options:
        return replace(
            self,
            explicit_key=self.explicit_key if key is None else explicit_key(key),
            retries=self.retries if retries is None else as_retry(retries),
            timeout_s=self.timeout_s if timeout is None else in_seconds(timeout, "timeout="),
        )


def as_retry(retries: int | Retry) -> Retry:
    if isinstance(retries, Retry):
        return retries
    if not isinstance(retries, int) or retries < 0:
        raise UsageError(f"retries= takes a number from 0 on, or hf.Retry(…); got {retries!r}.")
    return Retry(retries)


def as_types(
    types: type[BaseException] | tuple[type[BaseException], ...], option: str
) -> tuple[type[BaseException], ...]:
    given = types if isinstance(types, tuple) else (types,)
    for each in given:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise UsageError(f"{option}= takes exception classes; got {each!r}.")
    return given


def explicit_key(key: str) -> str:
    if not isinstance(key, str) or not key or len(key) > 200 or not key.isprintable():
        raise UsageError(f"key= takes 1 to 200 printable characters; got {key!r}.")
    return f"key:{key}"


def checked_name(name: str | None, fn: Callable[..., Any]) -> str:
    """The name under which calls are recorded: `name=`, or the function's own; never its module."""
    if not callable(fn):
        raise UsageError(
            f"A decorator of Holdfast takes a function, or options by their names: @hf.step(retries=3); got {fn!r}."
        )
    chosen = name if name is not None else getattr(fn, "__name__", "")
    if not re.fullmatch(_NAME, chosen) or chosen.startswith("hf."):
        raise UsageError(
            f"{chosen!r} cannot be a name: use letters, digits, '_', '-', '.', at most 100, not starting with 'hf.'. "
            "Pass name= to the decorator."
        )
    return chosen
