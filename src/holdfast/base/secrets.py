"""Values that are used and not kept: keys, passwords, tokens.

A `Secret` holds one. It shows nothing of it wherever it is shown, and is not stored: as an argument of a step or effect
it is recorded by the name of its class; as a result, state, input or message it is refused. What `reveal()` gives is
a plain value that code can do anything with, so texts are looked at for it as well: what a run would read back is
refused, and what is written for people (arguments, errors, notes, log lines) has a mark in its place.

The values are known by process, as the log is, and not by app: whoever holds them did not say which app they are for.
Nothing is looked at as long as there are none, which is all that most programs pay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, Generic, NoReturn, TypeVar

from holdfast.errors import UsageError

T_co = TypeVar("T_co", covariant=True)

Hook = Callable[[str], str]

MARK: Final = "(secret)"
_FAILED: Final = "(not shown: the redaction hook failed)"
#: Shorter ones are parts of other words.
_SHORTEST: Final = 6
#: Values that are remembered, the last ones: a process may make them for as long as it lives.
_MOST: Final = 1000


class Secrets:
    """The values and hooks of a process."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._hooks: list[Hook] = []
        self._pattern: re.Pattern[str] | None = None
        self.is_any = False  #: is there anything to look for?

    def know(self, value: object) -> None:
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes | bytearray) else value
        if not isinstance(text, str) or len(text) < _SHORTEST:
            return
        for form in {text, json.dumps(text)[1:-1]}:  # as it is, and as it is written in JSON
            self._values.pop(form, None)
            self._values[form] = None
        while len(self._values) > 2 * _MOST:
            del self._values[next(iter(self._values))]
        self._pattern = re.compile("|".join(map(re.escape, sorted(self._values, key=len, reverse=True))))
        self.is_any = True

    def add_hook(self, hook: Hook) -> None:
        self._hooks.append(hook)
        self.is_any = True

    def is_in(self, text: str) -> bool:
        """Is one of the values in a text?"""
        return self._pattern is not None and self._pattern.search(text) is not None

    def without(self, text: str) -> str:
        """A text for people, with a mark where a value was; and what the hooks leave of it."""
        if self._pattern is not None:
            text = self._pattern.sub(MARK, text)
        for hook in self._hooks:
            try:
                text = hook(text)
            except Exception:  # it is the user's; what it was to hide is hidden all the same
                return _FAILED
        return text if isinstance(text, str) else _FAILED

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]


#: Of this process: a secret is one wherever it turns up.
SECRETS: Final = Secrets()


class Secret(Generic[T_co]):
    """A value that never reaches the store, a log or a response.

    As an argument of a step or effect it is recorded as `Secret`, without a digest of what it holds: another key is no
    other call. As a result, a state, an agent's input or a message it is refused. Texts and bytes of at least six
    characters are known by their value too: revealed, and returned by a step, they are refused; in arguments,
    errors, notes and log lines they are replaced. What a body writes into files is its own business.

    Example: `key = hf.Secret(os.environ["API_KEY"])`, and `key.reveal()` where it is used
    """

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        if isinstance(value, Secret):
            raise UsageError("hf.Secret() takes a value; this is a Secret already.")
        self._value = value
        SECRETS.know(value)

    def reveal(self) -> T_co:
        """The value.

        Example: `client = Client(key=key.reveal())`
        """
        return self._value

    #: What other libraries call it.
    get_secret_value = reveal

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __copy__(self) -> Secret[T_co]:
        return self

    def __deepcopy__(self, memo: object) -> Secret[T_co]:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("A Secret is not pickled; fetch it where it is used.")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """A field of a model may be one; as JSON it is a mark, which is not read back."""
        from pydantic_core import core_schema

        hidden = core_schema.plain_serializer_function_ser_schema(lambda _: MARK, when_used="json")
        return core_schema.is_instance_schema(cls, serialization=hidden)


def redact(hook: Hook) -> None:
    """Have a function change what is kept for people: arguments of steps and effects, errors, and log lines.

    It gets the text (JSON, where it is recorded) and returns what is kept of it. It must always return the same for the
    same text, since calls are recognised by their arguments. What a run reads back (results, states, inputs) is not
    for it: that has to stay what it was. If it raises, the text is left out. It is for all apps of this process.

    Example: `hf.redact(lambda text: re.sub(r"\\\\b\\\\d{16}\\\\b", "(card)", text))`
    """
    if not callable(hook):
        raise UsageError(f"hf.redact() takes a function of a text; got {hook!r}.")
    SECRETS.add_hook(hook)
