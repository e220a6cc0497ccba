"""Exceptions: what a step raised is raised again after a resume, and no serialiser error ever hides it."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec import decode_error, encode_error, roundtrip_error, said_by
from holdfast.errors import EffectInDoubt, RetryLater, RunBlocked, StepError, Undecodable, Unserialisable


class Simple(Exception):
    pass


class Derived(Simple):
    pass


class Keyworded(Exception):
    def __init__(self, *, code: int, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Reordered(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{second} before {first}")
        self.first = first


class Silent(Exception):
    def __init__(self, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class BrokenStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")

    __repr__ = __str__


class Hostile(Exception):
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise SystemError("str")


class ApiError(OSError):
    def __init__(self, status: int) -> None:
        super().__init__(errno.EPIPE, "broken", "/dev/x")
        self.status = status


class BadNew(Exception):
    def __new__(cls, one: int, two: int) -> BadNew:
        self = super().__new__(cls)
        self.both = (one, two)
        return self

    both: tuple[int, int]


class BadText(UnicodeDecodeError):
    pass


class Group(ExceptionGroup[Exception]):
    pass


class Slotted(Exception):
    __slots__ = ("code",)


@dataclasses.dataclass
class Coded(Exception):
    code: int
    tags: tuple[str, ...] = ()


class Client:
    pass


MINE = (Simple, Keyworded, Reordered, Silent, BrokenStr, Hostile, ApiError, BadNew, BadText, Group, Slotted, Coded)


def chained() -> Exception:
    try:
        try:
            raise Simple("inner")
        except Simple as inner:
            raise ValueError("outer") from inner
    except ValueError as outer:
        return outer


def in_context() -> Exception:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904
    except ValueError as second:
        return second


def noted() -> Exception:
    exc = ValueError("x")
    exc.add_note("see also")
    return exc


def attributed() -> Exception:
    exc = Simple("x")
    exc.when = (1, {"$tuple": 2})  # type: ignore[attr-defined]
    exc.client = Client()  # type: ignore[attr-defined]
    return exc


SHAPES: list[Exception] = [
    ValueError(),
    ValueError("a", 1, (2, b"\xff"), float("inf")),
    KeyError("missing"),
    KeyError(("a", 1)),
    FileNotFoundError(errno.ENOENT, "No such file", "a.txt"),
    OSError(errno.EXDEV, "cross", "a", None, "b"),
    OSError("only text"),
    TimeoutError("late"),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
    UnicodeEncodeError("ascii", "é\ud800", 0, 1, "no"),
    SyntaxError("bad", ("file.py", 1, 2, "x = ", 1, 3)),
    ImportError("no", name="thing", path="/x"),
    AttributeError("no", name="field", obj=Client()),
    StopIteration(5),
    StopAsyncIteration(),
    ZeroDivisionError("\x00 😀"),
    RecursionError("deep"),
    AssertionError(),
    UserWarning("careful"),
    ExceptionGroup("several", [ValueError(1), ExceptionGroup("more", [KeyError("k"), Simple("s")])]),
    Simple("one", 2),
    Derived("subclass"),
    Keyworded(code=5, detail="d"),
    Reordered(1, 2),
    Silent(404),
    ApiError(503),
    BadNew(1, 2),
    BadText("utf-8", b"\xff", 0, 1, "bad"),
    Group("mine", [Simple("x")]),
    Coded(7, ("a",)),
    chained(),
    in_context(),
    noted(),
    StepError("m", error_type="X", error_message="y"),
    EffectInDoubt("m", error_type="X"),
    RetryLater(5, hold_queue=True),
    RunBlocked("m", run_id="r", token="r@t", reason={"a": [1]}),
    Unserialisable("m", path="result.a", type_name="Client"),
]


def members(exc: BaseException) -> list[object]:
    return [looks(member) for member in exc.exceptions] if isinstance(exc, BaseExceptionGroup) else []


def looks(exc: BaseException) -> object:
    extra = [getattr(exc, name, None) for name in ("errno", "filename", "filename2", "name", "path", "value", "start")]
    args = () if isinstance(exc, BaseExceptionGroup) else exc.args
    cause = exc.__cause__ and looks(exc.__cause__)
    context = looks(exc.__context__) if exc.__context__ and not exc.__cause__ else None
    return type(exc), str(exc), args, vars(exc), extra, cause, context, exc.__suppress_context__, members(exc)


@pytest.mark.parametrize("exc", SHAPES, ids=lambda exc: type(exc).__name__)
def test_known_exceptions_come_back_with_class_message_arguments_and_attributes(exc: Exception) -> None:
    text = encode_error(exc)
    assert text.isascii()
    back = decode_error(text, MINE)
    assert looks(back) == looks(exc)
    live_text, live = roundtrip_error(exc, MINE)
    assert live_text == text
    assert looks(live) == looks(exc)
    assert live.__traceback__ is exc.__traceback__


def test_an_undeclared_class_comes_back_as_a_step_error_that_says_what_to_do() -> None:
    text, live = roundtrip_error(Keyworded(code=5, detail="d"), ())
    for back in (live, decode_error(text)):
        assert type(back) is StepError
        assert (back.error_type, back.error_message) == ("Keyworded", "5: d")
        assert "raises=(Keyworded,)" in str(back)
        assert back.__cause__ is None


def test_only_the_undeclared_members_and_causes_become_step_errors() -> None:
    back = decode_error(encode_error(ExceptionGroup("g", [ValueError(1), Simple("x")])))
    assert isinstance(back, ExceptionGroup)
    assert [type(member) for member in back.exceptions] == [ValueError, StepError]
    back = decode_error(encode_error(chained()))
    assert type(back) is ValueError
    assert isinstance(back.__cause__, StepError)
    assert back.__cause__.error_type == "Simple"


def test_a_class_of_the_script_is_found_under_a_worker_too() -> None:
    tree = json.loads(encode_error(Simple("x")))
    assert type(decode_error(json.dumps(tree | {"module": "__main__"}), (Simple,))) is Simple
    assert type(decode_error(json.dumps(tree | {"module": "elsewhere"}), (Simple,))) is StepError


@pytest.mark.parametrize(
    "exc",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError("x"),
        BaseExceptionGroup("g", [KeyboardInterrupt()]),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_exceptions_that_are_no_errors_never_come_back_as_themselves(exc: BaseException) -> None:
    back = decode_error(encode_error(exc), (BaseException, type(exc)))
    assert type(back) is StepError
    assert back.error_type == type(exc).__qualname__


def test_broken_and_hostile_exceptions_are_written_without_raising() -> None:
    for exc in (BrokenStr("x"), Hostile("y")):
        assert "cannot be shown" in encode_error(exc)
        assert type(decode_error(encode_error(exc), MINE)) is type(exc)
        assert type(decode_error(encode_error(exc))) is StepError
    slotted = Slotted("x")
    slotted.code = 1  # type: ignore[attr-defined]
    assert type(decode_error(encode_error(slotted), MINE)) is Slotted


def test_what_cannot_be_stored_of_an_exception_is_left_out_and_the_rest_is_kept() -> None:
    back = decode_error(encode_error(attributed()), MINE)
    assert vars(back) == {"when": (1, {"$tuple": 2})}
    back = decode_error(encode_error(ValueError("a", Client())))
    assert back.args == ("a", "<Client>")
    cycle: list[Any] = []
    cycle.append(cycle)
    assert decode_error(encode_error(ValueError(cycle))).args == ("<list>",)


def test_endless_chains_are_cut() -> None:
    one, two = ValueError("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    assert type(decode_error(encode_error(one))) is ValueError
    last = ValueError("0")
    for index in range(5000):
        following = ValueError(str(index))
        following.__cause__ = last
        last = following
    began = time.perf_counter()
    assert len(encode_error(last)) < 100_000
    group: ExceptionGroup[Exception] = ExceptionGroup("0", [ValueError()])
    for _ in range(12):
        group = ExceptionGroup("n", [group, group, group])
    assert len(encode_error(group)) < 10_000_000
    assert type(decode_error(encode_error(group))) in (ExceptionGroup, StepError)
    assert time.perf_counter() - began < 60


def test_the_traceback_is_text_without_the_values_of_variables() -> None:
    secret = "hunter2" * 2
    try:
        raise ValueError("x")
    except ValueError as exc:
        text = encode_error(exc)
    assert "test_codec_errors.py" in json.loads(text)["traceback"]
    assert secret not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"type":1}',
        '{"type":"X","module":"builtins","message":"m","args":5}',
        "[" * 5000,
        '{"type":"ValueError","module":"builtins","message":"m","attributes":[1]}',
        '{"$nope":1}',
        '{"type":"ValueError","module":"builtins","message":"m","notes":[1]}',
    ],
)
def test_a_text_that_is_no_exception_is_undecodable(text: str) -> None:
    with pytest.raises(Undecodable):
        decode_error(text)


def test_names_in_stored_data_are_never_imported_or_called() -> None:
    for module, name in (
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "SystemExit"),
        ("subprocess", "CalledProcessError"),
    ):
        back = decode_error(json.dumps({"type": name, "module": module, "message": "m", "args": ["true"]}))
        assert type(back) is StepError


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SHAPES), st.data())
def test_a_mutated_exception_gives_an_exception_or_undecodable(exc: Exception, data: st.DataObject) -> None:
    text = encode_error(exc)
    position = data.draw(st.integers(0, len(text)))
    mutated = text[:position] + data.draw(st.text(max_size=3)) + text[position + data.draw(st.integers(0, 4)) :]
    try:
        assert isinstance(decode_error(mutated, MINE), Exception)
    except Undecodable:
        return


def test_what_an_exception_says_has_no_colon_behind_which_there_is_nothing() -> None:
    assert said_by(TimeoutError("5 s")) == "TimeoutError: 5 s"
    assert said_by(TimeoutError()) == "TimeoutError"
    assert said_by(Simple("")) == "Simple"
