"""What workers let others know of their agents: signals, interrupts, queue, and what a start without the code needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.codec import defaults_of, first_parameter, schema_of
from holdfast.model import Definition
from holdfast.store.base import Store
from holdfast.verbs.child import Agent

KIND = "agent"


class Declarations:
    """The agents of a process, as others are told of them."""

    def __init__(self, store: Store, agents: Mapping[str, Agent[..., Any]]) -> None:
        self._store = store
        self._agents = agents
        self._told: set[str] = set()
        self._looked_at: set[str] = set()
        self._signals: dict[str, dict[str, Any]] = {}

    def has(self, name: str) -> bool:
        """Was an agent looked at, whether or not there was something to tell?"""
        return name in self._looked_at

    def signals_of(self, name: str) -> Mapping[str, Any]:
        """The schemas of the signals that an agent declares, by their names."""
        known = self._signals.get(name)
        if known is None:
            signals = self._agents[name].signals
            known = self._signals[name] = {each: schema_of(signal.type) for each, signal in signals.items()}
        return known

    async def tell(self, *, everything: bool = False) -> None:
        """Let others know what the agents take; by default only of those that take more than their input.

        What others know of an agent already is brought up to date: its defaults are part of that.
        """
        new = {
            agent.name: json.dumps(
                {
                    "signals": self.signals_of(agent.name),
                    "interrupts": agent.interrupted is not None,
                    "queue": agent.queue,
                    "first": first_parameter(agent.fn),
                    "defaults": defaults_of(agent.fn),
                },
                sort_keys=True,
            )
            for agent in self._agents.values()
            if agent.name not in (self._told if everything else self._looked_at)
        }
        if not new:
            return
        known = {each.name: each for each in await self._store.definitions(KIND, names=sorted(new))}
        wanted = {name for name in new if everything or name in known or _takes_more(self._agents[name])}
        changed = [
            Definition(KIND, name, new[name], known[name].revision + 1 if name in known else 1)
            for name in wanted
            if name not in known or known[name].body != new[name]
        ]
        self._told |= wanted
        self._looked_at.update(new)
        if changed:
            await self._store.define(changed)


def _takes_more(agent: Agent[..., Any]) -> bool:
    return bool(agent.signals or agent.interrupted or agent.queue)
