"""An agent that writes down every value it receives; nothing it computes is ever the same twice."""

from __future__ import annotations

import json
import os
import uuid

import holdfast as hf


def note(value: object) -> None:
    line = json.dumps([hf.this_run().id, value]) + "\n"
    descriptor = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@hf.step
async def draw(n: int) -> dict[str, str]:
    return {"token": uuid.uuid4().hex, "text": "a line of text " * (n % 4)}


@hf.step
async def draw_large(n: int) -> str:
    return uuid.uuid4().hex * 400


@hf.effect(on_doubt="retry")
async def change(n: int) -> str:
    return uuid.uuid4().hex


@hf.agent
async def witness(n: int, given: str) -> int:
    note(given)
    for i in range(n):
        note(await draw(i))
        note(await change(i))
        if i == 1:
            note(await draw_large(i))
    return n
