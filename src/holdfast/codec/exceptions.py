"""Exceptions as text, and back.

An exception is written as its type's name, message, arguments, plain attributes, notes, chain and traceback text. It
is read back as its own class only if that class is known without a look at stored data: a builtin, one of ours, or one
that the step declares in `raises=` (or a loaded subclass of it). Anything else becomes a `StepError` that carries the
original's name and message.

A class is rebuilt with the `__new__` and `__init__` of its nearest builtin base, never with its own: exceptions whose
`__init__` takes other arguments than `args` are common, and running such code during a replay could do anything.

Writing never raises, whatever the exception does when it is looked at: a serialiser's error must not hide the real one.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from holdfast import errors
from holdfast.base.secrets import SECRETS
from holdfast.codec.fastjson import Json, encode
from holdfast.codec.foreign import refuse
from holdfast.codec.refusal import class_name, type_name
from holdfast.codec.tags import pack
from holdfast.codec.text import from_text
from holdfast.errors import StepError, Undecodable

_BUILTINS: Final = {
    name: found
    for name, found in vars(builtins).items()
    if isinstance(found, type) and issubclass(found, Exception) and found.__name__ == name
}
_OURS: Final = {
    name: found for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, Exception)
}
#: Attributes that builtin classes keep outside `__dict__`, and that may be set again.
_SLOTS: Final = ("name", "path", "name_from", "characters_written", "print_file_and_line")

_MAX_CHAIN: Final = 16
_MAX_ERRORS: Final = 1000
_MAX_FRAMES: Final = 20
_MAX_TRACEBACK_CHARS: Final = 8000


def encode_error(exc: BaseException) -> str:
    """The text of an exception; never raises.

    decode_error(encode_error(KeyError("a")))   # KeyError('a')
    """
    try:
        return _without_secrets(encode(_tree(exc, _Seen())))
    except BaseException:  # the promise above; a bare name is better than an error about an error
        return encode(_identity(exc))


def _without_secrets(text: str) -> str:
    if not SECRETS.is_any:
        return text
    kept = SECRETS.without(text)
    if kept != text:
        from_text(kept)  # a hook may have left something that is no JSON
    return kept


def decode_error(text: str, raises: Sequence[type[BaseException]] | None = ()) -> Exception:
    """The exception of a text: itself if it is builtin, ours or in `raises`, else a `StepError`.

    That says how to get the class back, unless it is nothing that can be declared: `raises` is None then. Raises
    `Undecodable` if the text is not that of an exception.
    """
    try:
        return _rebuild(from_text(text), None if raises is None else tuple(raises))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Undecodable(f"A stored exception cannot be read: it is damaged or foreign ({error}).") from None


def roundtrip_error(exc: BaseException, raises: Sequence[type[BaseException]]) -> tuple[str, Exception]:
    """The text of an exception and what a replay will raise, with the traceback of the original where it fits."""
    text = encode_error(exc)
    back = decode_error(text, raises)
    return text, back.with_traceback(exc.__traceback__) if type(back) is type(exc) else back


class _Seen:
    """Where we are in a chain of exceptions, which may be long, wide or circular."""

    def __init__(self) -> None:
        self._path: list[int] = []
        self._count = 0

    @contextmanager
    def entering(self, exc: BaseException) -> Iterator[bool]:
        is_new = id(exc) not in self._path and len(self._path) < _MAX_CHAIN and self._count < _MAX_ERRORS
        self._path.append(id(exc))
        self._count += 1
        try:
            yield is_new
        finally:
            self._path.pop()


def _identity(exc: BaseException) -> dict[str, Json]:
    return {"type": type_name(exc), "module": _module(type(exc)), "message": message_of(exc)}


def _tree(exc: BaseException, seen: _Seen) -> Json:
    tree: dict[str, Json] = {}
    with seen.entering(exc) as is_new:
        if not is_new:
            return _identity(exc)
        tree["args"] = [_pack_arg(arg) for arg in _args(exc)]
        tree["attributes"] = list(_pack_attributes(exc))
        notes = getattr(exc, "__notes__", None)
        if isinstance(notes, list | tuple):
            tree["notes"] = [note for note in notes if type(note) is str]
        if isinstance(exc, BaseExceptionGroup):
            tree["args"] = tree["args"][:1]
            tree["members"] = [_tree(member, seen) for member in exc.exceptions]
        if exc.__cause__ is not None:
            tree["cause"] = _tree(exc.__cause__, seen)
        elif exc.__context__ is not None and not exc.__suppress_context__:
            tree["context"] = _tree(exc.__context__, seen)
        tree["suppress_context"] = exc.__suppress_context__
        tree["traceback"] = _traceback(exc)
    return _identity(exc) | {name: value for name, value in tree.items() if value}


def _pack_arg(value: Any) -> Json:
    try:
        return pack(value, 0, refuse)
    except BaseException:  # an argument that cannot be stored must not hide the exception
        return f"<{type_name(value)}>"


def _pack_attributes(exc: BaseException) -> Iterator[list[Json]]:
    for name, value in _attributes(exc):
        with suppress(BaseException):  # what cannot be stored is left out
            yield [name, pack(value, 0, refuse)]


def _module(kind: type) -> str:
    module = kind.__module__
    return module if type(module) is str else ""


def message_of(exc: BaseException) -> str:
    """What an exception says; never raises."""
    try:
        said = str.__str__(str(exc))
        return SECRETS.without(said) if SECRETS.is_any else said
    except BaseException:  # a broken __str__ is the exception's fault, not a reason to lose it
        return f"<the message of {type_name(exc)} cannot be shown>"


def said_by(exc: BaseException) -> str:
    """Its class and what it says, as Python ends a traceback; never raises."""
    return named(type(exc).__name__, message_of(exc))


def named(kind: str, message: str) -> str:
    """The name of an exception's class and its message, if it has one."""
    return f"{kind}: {message}" if message else kind


def _args(exc: BaseException) -> tuple[Any, ...]:
    args = BaseException.__dict__["args"].__get__(exc)
    if isinstance(exc, OSError) and len(args) == 2 and (exc.filename is not None or exc.filename2 is not None):
        # The constructor takes the file names as arguments and then hides them from `args`.
        return (*args, exc.filename) if exc.filename2 is None else (*args, exc.filename, None, exc.filename2)
    return tuple(args)


def _attributes(exc: BaseException) -> Iterator[tuple[str, Any]]:
    for name, value in _own(exc):
        if type(name) is str and name != "__notes__":
            yield name, value
    for name in _SLOTS:
        if _is_slot(exc, name):
            value = getattr(exc, name, None)
            if value is not None:
                yield name, value


def _is_slot(exc: BaseException, name: str) -> bool:
    holder = next((base for base in type(exc).__mro__ if name in vars(base)), None)
    return name in _SLOTS and holder is not None and holder.__module__ == "builtins"


def _own(exc: BaseException) -> list[tuple[Any, Any]]:
    try:
        return list(object.__getattribute__(exc, "__dict__").items())
    except Exception:  # a class may hide its __dict__
        return []


def _traceback(exc: BaseException) -> str:
    try:
        return "".join(traceback.format_tb(exc.__traceback__, -_MAX_FRAMES))[-_MAX_TRACEBACK_CHARS:]
    except Exception:  # source files may be gone or unreadable
        return ""


def _rebuild(tree: Any, raises: tuple[type[BaseException], ...] | None) -> Exception:
    if type(tree) is not dict or not all(type(tree.get(part)) is str for part in ("type", "module", "message")):
        raise ValueError("not an exception")
    args = tuple(_typed(tree, "args", list))
    members = [_rebuild(member, raises) for member in _typed(tree, "members", list)]
    kind = _known_class(tree["module"], tree["type"], raises or ())
    exc = None if kind is None else _instance(kind, args, members)
    if exc is None:
        is_declarable = raises is not None and tree["module"] != "builtins"
        exc = _stand_in(tree["type"], tree["message"], is_declarable=is_declarable)
    else:
        _restore(exc, _typed(tree, "attributes", list))
    for note in _typed(tree, "notes", list):
        exc.add_note(note)
    if "context" in tree:
        exc.__context__ = _rebuild(tree["context"], raises)
    if "cause" in tree:
        exc.__cause__ = _rebuild(tree["cause"], raises)
    exc.__suppress_context__ = tree.get("suppress_context") is True
    return exc


def _typed(tree: dict[str, Any], part: str, kind: type) -> Any:
    found = tree.get(part, kind())
    if type(found) is not kind:
        raise ValueError(f"{part} is not a {kind.__name__}")
    return found


def _stand_in(name: str, message: str, *, is_declarable: bool) -> StepError:
    hint = f" (to get this class back, declare it: raises=({name.rpartition('.')[2]},))" if is_declarable else ""
    return StepError(f"{name}: {message}{hint}", error_type=name, error_message=message)


def _known_class(module: str, name: str, raises: tuple[type[BaseException], ...]) -> type[Exception] | None:
    for known, home in ((_BUILTINS, "builtins"), (_OURS, errors.__name__)):
        if module == home and name in known:
            return known[name]
    declared = [kind for kind in raises if _is_exception(kind)]
    same_name = []
    for kind in _with_subclasses(declared):
        if class_name(kind) == name:
            if _module(kind) == module:
                return kind
            same_name.append(kind)
    # A script's module is `__main__` here and has its real name under a worker.
    fitting = [kind for kind in same_name if "__main__" in (module, _module(kind))]
    return fitting[0] if len(fitting) == 1 else None


def _is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def _with_subclasses(kinds: Sequence[Any]) -> list[type[Exception]]:
    found = dict.fromkeys(kinds)
    waiting = list(found)
    while waiting:
        for kind in type.__subclasses__(waiting.pop()):
            if kind not in found:
                found[kind] = None
                waiting.append(kind)
    return list(found)


def _instance(kind: type[Exception], args: tuple[Any, ...], members: list[Exception]) -> Exception | None:
    base: Any = next(parent for parent in kind.__mro__ if parent.__module__ == "builtins")
    if issubclass(kind, BaseExceptionGroup):
        args = (*args[:1], members)
    try:
        exc = base.__new__(kind, *args)
        base.__init__(exc, *args)
    except (TypeError, ValueError, ArithmeticError):  # foreign or changed arguments
        return None
    if not isinstance(exc, Exception):
        return None
    if not isinstance(exc, OSError | BaseExceptionGroup):
        exc.args = args
    return exc


def _restore(exc: Exception, attributes: list[Any]) -> None:
    own = object.__getattribute__(exc, "__dict__")
    for name, value in attributes:
        if type(name) is not str:
            raise ValueError("an attribute without a name")
        if _is_slot(exc, name):
            setattr(exc, name, value)
        else:
            own[name] = value
