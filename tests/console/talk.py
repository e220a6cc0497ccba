"""Agents that talk: they say something in their thread, have a plan, ask, and send letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import holdfast as hf


@dataclass
class Said:
    role: str
    text: str


@hf.step
async def search(topic: str) -> list[str]:
    return [f"{topic} for sailors", f"{topic} for children"]


@hf.step
async def write(pages: list[str]) -> str:
    return f"A letter about {pages[0]}."


@hf.effect(on_doubt="retry")
async def send(letter: str) -> str:
    return "sent"


@hf.agent
async def letter(topic: str) -> str:
    text = await write(await search(topic))
    return f"{await send(text)}: {text}"


@hf.agent
async def support(question: str) -> str:
    """Answers in its thread, and asks somebody about everything that has a question mark."""
    memory = hf.thread(Said)
    await memory.append(Said("user", question))
    todo = await hf.plan(["read the question", "answer it", "file it"])
    await todo.tick(1, note=f"{len(question)} letters")
    known = await memory.recent(20)
    if "?" in question:
        is_fine = await hf.ask(f"May I answer {question!r}?", show={"messages": len(known)})
        answer = "Her name is Tern." if is_fine else "I must not say."
    else:
        answer = f"I know {len(known)} messages."
    await memory.append(Said("assistant", answer))
    await todo.tick(2)
    return answer


ALL: list[hf.Agent[..., Any]] = [letter, support]
