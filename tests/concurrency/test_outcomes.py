"""What a step raises or returns is the same live, in a branch, and on every replay."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from tests.concurrency.crashes import run_again, run_here

ran: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


class Declared(Exception):
    """With arguments of its own."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"{code}: {hint}")
        self.code = code
        self.hint = hint


class Undeclared(Exception):
    pass


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BrokenInit(Exception):
    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__()


class Odd(OSError):
    pass


def _chained() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as outer:
        return outer


def _noted() -> Exception:
    error = ValueError("with a note")
    error.add_note("look here")
    return error


def _with_object() -> Exception:
    return ValueError(object(), "text")


ERRORS: dict[str, Any] = {
    "value": lambda: ValueError("text", 3),
    "none": lambda: ValueError(),
    "key": lambda: KeyError("k"),
    "os": lambda: FileNotFoundError(2, "No such file", "name"),
    "connection": lambda: ConnectionResetError(104, "reset"),
    "timeout": lambda: TimeoutError("late"),
    "stop": lambda: StopAsyncIteration("s"),
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
    "json": lambda: json.JSONDecodeError("bad", "doc", 1),
    "sqlite": lambda: sqlite3.OperationalError("database is locked"),
    "zip": lambda: zipfile.BadZipFile("zip"),
    "group": lambda: ExceptionGroup("both", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])]),
    "chained": _chained,
    "noted": _noted,
    "object": _with_object,
    "declared": lambda: Declared(7, hint="declared"),
    "undeclared": lambda: Undeclared("undeclared", {"a": [1]}),
    "broken text": lambda: BrokenText("x"),
    "broken init": lambda: BrokenInit(1, 2, 3),
    "odd": lambda: Odd(5, "odd"),
    "step error": lambda: hf.StepError("mine", error_type="T"),
    "usage": lambda: hf.UsageError("usage"),
    "recursion": lambda: RecursionError("deep"),
    "memory": lambda: MemoryError(),
    "assertion": lambda: AssertionError({"a": 1}),
    "surrogate": lambda: ValueError("\ud800"),
    "long": lambda: ValueError("x" * 20_000),
}


@hf.step(raises=(Declared,))
async def raises(name: str) -> str:
    ran[name] += 1
    raise ERRORS[name]()


def shown(error: BaseException) -> str:
    """Everything that agent code could look at."""
    try:
        text = str(error)
    except RuntimeError:
        text = "<broken>"
    attributes = {k: str(v) for k, v in sorted(vars(error).items()) if not k.startswith("_holdfast")}
    parts = [shown(each) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    numbers = [str(getattr(error, each, "")) for each in ("errno", "filename", "start", "reason", "pos")]
    return repr((type(error).__qualname__, text, [str(a) for a in error.args], attributes, parts, numbers))


@hf.agent
async def catching() -> list[str]:
    async def one(name: str) -> str:
        try:
            return await raises(name)
        except Exception as error:
            return shown(error)

    alone = [await one(name) for name in ERRORS]
    together = await asyncio.gather(*(one(name) for name in ERRORS))
    direct = await asyncio.gather(*(raises(name) for name in ERRORS), return_exceptions=True)
    return [*alone, *together, *(shown(each) for each in direct if isinstance(each, BaseException))]


def test_an_exception_is_the_same_live_in_a_branch_and_on_replay(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", catching())
    count = len(ERRORS)
    assert ended.result[:count] == ended.result[count : 2 * count] == ended.result[2 * count :]
    assert set(ran.values()) == {3}
    assert run_again(ended, catching(), tmp_path).result == ended.result
    assert set(ran.values()) == {3}, "no failed step runs again"
    assert "Declared" in ended.result[list(ERRORS).index("declared")]
    assert "'hint': 'declared'" in ended.result[list(ERRORS).index("declared")]
    assert "StepError" in ended.result[list(ERRORS).index("undeclared")]
    assert "database is locked" in ended.result[list(ERRORS).index("sqlite")]


FALSY: dict[str, Any] = {
    "none": None,
    "zero": 0,
    "empty": "",
    "list": [],
    "dict": {},
    "false": False,
    "tuple": (),
    "float": -0.0,
}


@hf.step
async def gives(name: str) -> Any:
    ran[name] += 1
    return FALSY[name]


@hf.effect
async def does(name: str) -> Any:
    ran[f"do {name}"] += 1
    return FALSY[name]


@hf.agent
async def falsy() -> list[str]:
    values = [await gives(name) for name in FALSY]
    values += await asyncio.gather(*(gives(name) for name in FALSY), *(does(name) for name in FALSY))
    return [repr(value) for value in values]


def test_falsy_results_are_results(tmp_path: Path) -> None:
    ended = run_here(tmp_path / "holdfast.db", falsy())
    assert ended.result == [repr(value) for value in FALSY.values()] * 3
    ran.clear()
    assert run_again(ended, falsy(), tmp_path).result == ended.result
    assert not ran
