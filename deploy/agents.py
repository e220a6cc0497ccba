"""An agent to see that a deployment works: `holdfast run agents.py:hello Ada`."""

import holdfast as hf


@hf.step
async def greet(name: str) -> str:
    return f"Hello {name}."


@hf.agent
async def hello(name: str) -> str:
    return await greet(name)
