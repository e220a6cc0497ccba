"""The adapters, each by its agents: whose letters are counted, who asks a person, who hands on what a model streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.testing.model_server import Turn
from tests.ext.letters import TURNS

#: What the model says to those that ask one on the network; the turn after the last is what no run ends with by itself.
LETTERS = [
    *(Turn(calls=[("letter", {"to": f"{turn}{reader}"}) for reader in "ab"]) for turn in range(1, TURNS + 1)),
    Turn(say="done"),
]
WORDS = [Turn(say="one two three")]


@dataclass(frozen=True)
class Adapter:
    """`packages` are what it needs, the first one, and whose coroutines a release might rename."""

    packages: Sequence[str]
    module: str
    writes: str
    asks: str
    answer: Any = True
    streams: str = ""  #: nothing, where an answer is never handed on in parts
    parts: int = 0  #: of the answer that is
    has_model: bool = True

    @property
    def name(self) -> str:
        return self.packages[0]


ADAPTERS = [
    Adapter(["pydantic_ai", "pydantic_graph"], "pydantic_bots", "write", asks="refunds", streams="streaming", parts=2),
    Adapter(["langgraph"], "graph_bots", "write_in_nodes", asks="post"),
    Adapter(
        ["langchain", "langgraph"],
        "graph_bots",
        "write",
        asks="write_if_allowed",
        answer={"decisions": [{"type": "approve"}] * 2},
    ),
    Adapter(["agents"], "openai_bots", "write", asks="refunds", streams="streams", parts=20),
    Adapter(["openai"], "http_bots", "write", asks="plainly", streams="stream", parts=3),
    Adapter(["mcp", "anyio"], "mcp_bots", "write", asks="write_if_allowed", has_model=False),
    Adapter(["google.adk"], "adk_bots", "write", asks="refunds", streams="speaks", parts=4),
]
