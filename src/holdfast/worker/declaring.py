"""What workers let others know of their agents: signals, interrupts, queue, and what a start without the code needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.codec import defaults_of, first_annotation, first_parameter
from holdfast.codec.schema import schema_of
from holdfast.model import Definition
from holdfast.store.contract import Store
from holdfast.verbs.agent import Agent

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
        passed = self._told if everything else self._looked_at
        new = [agent for agent in self._agents.values() if agent.name not in passed]
        if not new:
            return
        names = sorted(agent.name for agent in new)
        known = {each.name: each for each in await self._store.definitions(KIND, names=names)}
        wanted = [agent for agent in new if everything or agent.name in known or _takes_more(agent)]
        changed: list[Definition] = []
        for agent in wanted:
            old = known.get(agent.name)
            body = self._body(agent, with_input=everything or (old is not None and "takes" in json.loads(old.body)))
            if old is None or old.body != body:
                changed.append(Definition(KIND, agent.name, body, 1 if old is None else old.revision + 1))
        self._told.update(agent.name for agent in wanted)
        self._looked_at.update(agent.name for agent in new)
        if changed:
            await self._store.define(changed)

    def _body(self, agent: Agent[..., Any], *, with_input: bool) -> str:
        """What others are told of an agent; what its first argument takes only where triggers may need it, since
        pydantic takes long to load.
        """
        told = {
            "signals": self.signals_of(agent.name),
            "interrupts": agent._interrupted is not None,
            "queue": agent.queue,
            "first": first_parameter(agent.fn),
            "defaults": defaults_of(agent.fn),
        }
        if with_input:
            told["takes"] = schema_of(first_annotation(agent.fn))
        return json.dumps(told, sort_keys=True)


def _takes_more(agent: Agent[..., Any]) -> bool:
    return bool(agent.signals or agent._interrupted or agent.queue)
