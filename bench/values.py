"""What large values cost, next to what pydantic-core takes to write and read them. Processor time, least of many."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from typing import Any

import pydantic
import pydantic_core

from holdfast.codec import blob_digest, coder_for, encode_call
from holdfast.codec.differences import DifferenceChain, apply, difference, restore


class Message(pydantic.BaseModel):
    role: str
    content: str
    n: int


class State(pydantic.BaseModel):
    history: list[Message]
    n: int


@dataclasses.dataclass
class PlainMessage:
    role: str
    content: str
    n: int


@dataclasses.dataclass
class PlainState:
    history: list[PlainMessage]
    n: int


def messages(count: int, size: int) -> list[dict[str, Any]]:
    pick = random.Random(5)
    words = ["".join(pick.choices("abcdefghijklmnopqrstuvwxyz", k=pick.randrange(2, 9))) for _ in range(2000)]
    text = [" ".join(pick.choices(words, k=size // 5)).replace("e ", 'e"\n')[:size] for _ in range(count)]
    return [{"role": "user", "content": content, "n": n} for n, content in enumerate(text)]


def least(act: Callable[[], object], times: int = 40) -> float:
    act()
    took = []
    for _ in range(times):
        began = time.process_time()
        act()
        took.append(time.process_time() - began)
    return min(took)


def read(message: Any, *, temperature: float = 0.5) -> None:
    """Called with what is large."""


def codec() -> dict[str, float]:
    """Of 1 MB in messages of 100 characters: writing, reading, and what a step takes for its arguments."""
    found = {}
    said = messages(7000, 100)
    state = {"history": said, "n": 17}
    kinds: dict[str, tuple[Any, Any]] = {
        "pydantic model": (State, State.model_validate(state)),
        "dataclass": (PlainState, pydantic.TypeAdapter(PlainState).validate_python(state)),
        "dict": (dict[str, Any], state),
        "list of dicts": (list[dict[str, Any]], said),
    }
    for name, (annotation, value) in kinds.items():
        adapter, coder = pydantic.TypeAdapter(annotation), coder_for(annotation)
        text = adapter.dump_json(value)
        write, back = least(lambda: adapter.dump_json(value)), least(lambda: adapter.validate_json(text))  # noqa: B023
        stored = coder.dumps(value)
        found[f"writing 1 MB, {name}, x pydantic-core"] = least(lambda: coder.dumps(value)) / write  # noqa: B023
        found[f"reading 1 MB, {name}, x pydantic-core"] = least(lambda: coder.loads(stored)) / back  # noqa: B023
        found[f"1 MB as an argument, {name}, x pydantic-core"] = least(lambda: encode_call(read, (value,), {})) / write  # noqa: B023
    data = pydantic_core.to_json(state)
    found["digest of 1 MB, x pydantic-core"] = least(lambda: blob_digest(data)) / least(
        lambda: pydantic_core.to_json(state)
    )
    return found


def differences() -> dict[str, float]:
    """Of 1 MB in 500 messages, one more and two counters: next to writing it once; and what a whole chat takes."""
    said = messages(500, 2000)
    texts = [pydantic_core.to_json({"turn": n, "history": said[: 499 + n], "cost": n / 3}).decode() for n in range(2)]
    write = least(lambda: pydantic_core.to_json({"turn": 1, "history": said, "cost": 0.3}))
    change = difference(*texts)
    assert change is not None
    stored = change.dumps()
    assert apply(texts[0], stored) == texts[1]
    found = {
        "difference of 1 MB, x pydantic-core": least(lambda: difference(*texts)) / write,
        "applying it, x pydantic-core": least(lambda: apply(texts[0], stored)) / write,
    }
    raw = len(pydantic_core.to_json(said))
    for name, most in (("growing chat", 500), ("last 50 messages", 50)):
        chain, old, total = DifferenceChain(), None, 0
        rows: list[str] = []
        for n in range(1, 501):
            new = pydantic_core.to_json({"turn": n, "history": said[max(0, n - most) : n], "cost": n / 3}).decode()
            kept, chain = chain.following(old, new)
            rows = [*rows, kept] if chain.count else [kept]
            total += len(kept)
            old = new
        found[f"{name}, 500 x 2 kB, stored x raw"] = total / raw
        found[f"{name}, restored, ms"] = least(lambda: restore(rows[0], rows[1:]), 5) * 1000  # noqa: B023
    return found


GOALS = {
    **{f"writing 1 MB, {name}, x pydantic-core": (3, False) for name in ("pydantic model", "dataclass", "dict")},
    **{f"reading 1 MB, {name}, x pydantic-core": (3, False) for name in ("pydantic model", "dataclass", "dict")},
    "difference of 1 MB, x pydantic-core": (1, False),
    "applying it, x pydantic-core": (3, False),
    "growing chat, 500 x 2 kB, stored x raw": (1.8, False),
    "last 50 messages, 500 x 2 kB, stored x raw": (1.8, False),
}
