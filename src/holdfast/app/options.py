"""What an app is to be, as whoever connects says it."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from holdfast.base.config import Settings
from holdfast.base.data import data
from holdfast.errors import UsageError
from holdfast.verbs.agent import Agent
from holdfast.version import VERSION


@data
class AppOptions:
    """Which runs an app executes, and how many at once; without agents it is a client."""

    agents: tuple[Agent[..., Any], ...] = ()
    settings: Settings = field(default_factory=Settings)
    concurrency: int = 100
    queues: tuple[str, ...] | None = None  #: that it takes runs from; None: all
    only_own: bool = False  #: it takes up nothing but what it is asked for itself, and does no chores
    reads_only: bool = False  #: the store is opened so that nothing of it can be changed

    def __post_init__(self) -> None:
        for agent in self.agents:
            if not isinstance(agent, Agent):
                raise UsageError(f"agents= takes functions decorated with @hf.agent, not {agent!r}.")
        if self.concurrency < 1:
            raise UsageError(f"concurrency= must be at least 1, not {self.concurrency}.")

    def told(self) -> str:
        """What others see of a process that does this, as JSON."""
        facts = {
            "agents": sorted(agent.name for agent in self.agents),
            "queues": None if self.queues is None else sorted(self.queues),
            "concurrency": self.concurrency,
            "versions": {agent.name: agent.version for agent in self.agents if agent.version},
            "holdfast": VERSION,
        }
        return json.dumps(facts)
