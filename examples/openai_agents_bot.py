"""An agent of the OpenAI Agents SDK that is killed after a tool has acted, and goes on.

python examples/openai_agents_bot.py

The model is the SDK's own scripted one, made anew for each turn from what it hears, so nothing is sent anywhere.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Usage, function_tool
from agents.models.interface import Model
from agents.testing import ScriptedModel, assistant_message, function_call

import holdfast as hf
from holdfast.ext.openai_agents import durable, durable_tool

OUTBOX = Path("outbox.txt")


class Deciding(Model):
    """What a model would: mail two people, then say so."""

    def _said(self, heard: Any) -> list[Any]:
        if any(item.get("type") == "function_call_output" for item in heard if isinstance(item, dict)):
            return [assistant_message("Ada and Bo have mail.")]
        return [function_call("mail", {"to": name}, call_id=f"call_{name}") for name in ("ada", "bo")]

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        return ModelResponse(output=self._said(input), usage=Usage(), response_id=None)

    async def stream_response(self, instructions: Any, input: Any, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        async for event in ScriptedModel([self._said(input)]).stream_response(instructions, input, *rest, **more):
            yield event


async def find_sent(shown: dict[str, Any]) -> hf.Verdict[str]:
    """Asked about a mail that may or may not be out."""
    print(f"in doubt: was {shown['to']} mailed?")
    sent = OUTBOX.read_text().split() if OUTBOX.exists() else []
    return hf.landed(f"sent to {shown['to']}") if shown["to"] in sent else hf.not_landed()


@function_tool
async def mail(to: str) -> str:
    """Send a mail."""
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{to}\n")
    return f"sent to {to}"


agent = Agent(name="poster", model=Deciding(), tools=[durable_tool(mail, verify=find_sent, settle=0)])
bot = durable(agent, run_config=RunConfig(tracing_disabled=True))

if __name__ == "__main__":
    if not OUTBOX.exists() and "HOLDFAST_FAULT" not in os.environ:
        killed = os.environ | {"HOLDFAST_FAULT": "effect.after_body:kill"}
        process = subprocess.run([sys.executable, __file__], env=killed, check=False)
        print(f"the first process ended with {process.returncode}")
    print(hf.run(bot("Mail Ada and Bo."), id="mails"))
