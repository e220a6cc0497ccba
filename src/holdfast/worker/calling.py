"""Calling the agent of a run: with the input that is stored, as the code reads it now, and within its time."""

from __future__ import annotations

from typing import Any

from holdfast.codec import decode_input
from holdfast.errors import Undecodable
from holdfast.model import Record
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.context import RunContext
from holdfast.verbs import child, start, step_calls  # noqa: F401 - the code of a run needs them, and loads them by itself otherwise
from holdfast.verbs.agent import Agent
from holdfast.verbs.timer import timeout
from holdfast.worker.starting import origin_of


async def call_agent(run: RunContext, agent: Agent[..., Any], created: Record) -> Any:
    """What the agent returns; a run whose input does not fit is blocked."""
    try:
        defaults, outside = origin_of(created)
        args, kwargs = decode_input(agent.fn, run.text(created.args), defaults, outside=outside)
    except Undecodable as error:
        await run.block(Blocked(Trouble(Cause.input, agent.name, detail=str(error))))
        raise
    if agent._timeout_s is None:
        return await agent.fn(*args, **kwargs)
    async with timeout(agent._timeout_s):
        return await agent.fn(*args, **kwargs)
