"""The world of the demo's agent: a scripted model, a small web, a mail server; and a tally of what really ran.

Model and web answer from a script, so that the demo needs no key and no network; they take their time and count tokens
as real ones do. The mail server is a real process (`mailserver.py`). Every body leaves a line in the tally before it
does anything else. The demo compares the tally with the journal: that is how it knows that nothing ran twice.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from dataclasses import dataclass, field
from urllib.parse import quote

import holdfast as hf

_TEXTS = {
    "What raises the tides?": (
        "The Moon pulls harder at the near side of the Earth than at its centre, and least at the far side.",
        "The Sun does the same with a little less than half of the force, so new and full moon bring spring tides.",
        "Newton explained the bulges in 1687; Laplace added the motion of real water in basins.",
    ),
    "Why do most coasts have two a day?": (
        "There are two bulges of water, one below the Moon and one opposite, and the Earth turns under both.",
        "The lunar day lasts 24 hours and 50 minutes, so high waters are 12 hours and 25 minutes apart.",
        "Where the Moon stands far from the equator one of the two may vanish, as in the Gulf of Mexico.",
    ),
    "Where are they highest?": (
        "The Bay of Fundy in Canada reaches sixteen metres: its length makes the water swing in time with the Moon.",
        "The Bristol Channel and the bay of Mont-Saint-Michel come next, with about fourteen metres.",
        "The Mediterranean, nearly closed, sees some thirty centimetres.",
    ),
}
_DOLLARS_PER_INPUT_TOKEN, _DOLLARS_PER_OUTPUT_TOKEN = 3e-6, 15e-6
_PARENT = os.getppid()


def _setting(name: str, default: str = "") -> str:
    return os.environ.get(f"HOLDFAST_DEMO_{name}", default)


def tally() -> None:
    """Note that a body runs, in which process: one line, which a killed process leaves whole or not at all."""
    path = _setting("TALLY")
    if path:
        line = json.dumps({"pid": os.getpid(), "key": hf.this_step().key}) + "\n"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


async def _take(seconds: float) -> None:
    """Be as slow as the world is. The call that the demo wants to cut off gets no answer at all."""
    while hf.this_step().key == _setting("STALL"):
        if os.getppid() != _PARENT:
            raise ConnectionError("the demo has gone")
        await asyncio.sleep(0.05)
    await asyncio.sleep(seconds * float(_setting("PACE", "1")))


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answers, and what that costs."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float


class Model:
    """Knows three things about tides, and repeats what it is told about everything else."""

    async def ask(self, prompt: str) -> Reply:
        tally()
        head, _, told = prompt.partition("\n")
        if head.startswith("Which"):
            text = "\n".join(_TEXTS)
        elif head.startswith("Answer"):
            text = " ".join(told.splitlines()[:2])
        else:
            text = f"# Report\n\n{told}\n"
        await _take(0.3 + len(text) / 1000)
        asked, answered = len(prompt) // 4, len(text) // 4  # about four letters make a token
        cost = asked * _DOLLARS_PER_INPUT_TOKEN + answered * _DOLLARS_PER_OUTPUT_TOKEN
        return Reply(text, "scripted-1", asked, answered, cost)


class Web:
    """Has a page or three for each question."""

    async def search(self, question: str) -> list[str]:
        tally()
        await _take(0.2 + len(question) / 200)
        return list(_TEXTS.get(question, (f"Nothing is known about: {question}",)))


@dataclass(frozen=True, slots=True)
class Mail:
    """The mail server: where it listens, and what it has received."""

    host: str = "127.0.0.1"
    smtp_port: int = field(default_factory=lambda: int(_setting("SMTP_PORT", "25")))
    http_port: int = field(default_factory=lambda: int(_setting("HTTP_PORT", "80")))

    async def find(self, message_id: str) -> bool:
        """Has it received this message?"""
        return await asyncio.to_thread(self._find, message_id)

    def _find(self, message_id: str) -> bool:
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=10)
        try:
            connection.request("GET", f"/messages/{quote(message_id)}")
            reply = connection.getresponse()
            reply.read()
        finally:
            connection.close()
        if reply.status not in (200, 404):
            raise ConnectionError(f"the mail server answered {reply.status}")
        return reply.status == 200


model, web, mail = Model(), Web(), Mail()
