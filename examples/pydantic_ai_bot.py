"""An agent of Pydantic AI, unmodified, that is killed after a tool has acted, and goes on.

python examples/pydantic_ai_bot.py

The model is a function, so nothing is sent anywhere. The tool appends to outbox.txt; its `verify` looks there.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast as hf
from holdfast.ext.pydantic_ai import durable

OUTBOX = Path("outbox.txt")


def decide(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What a model would: mail two people, then say so."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("mail", {"to": name}) for name in ("ada", "bo")])
    return ModelResponse(parts=[TextPart("Ada and Bo have mail.")])


async def find_sent(shown: dict[str, Any]) -> hf.Verdict[str]:
    """Asked about a mail that may or may not be out."""
    print(f"in doubt: was {shown['to']} mailed?")
    sent = OUTBOX.read_text().split() if OUTBOX.exists() else []
    return hf.landed(f"sent to {shown['to']}") if shown["to"] in sent else hf.not_landed()


agent = Agent(FunctionModel(decide), name="poster")


@agent.tool_plain(metadata={"holdfast": {"verify": find_sent, "settle": 0}})
async def mail(to: str) -> str:
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{to}\n")
    return f"sent to {to}"


bot = durable(agent)

if __name__ == "__main__":
    if not OUTBOX.exists() and "HOLDFAST_FAULT" not in os.environ:
        killed = os.environ | {"HOLDFAST_FAULT": "effect.after_body:kill"}
        process = subprocess.run([sys.executable, __file__], env=killed, check=False)
        print(f"the first process ended with {process.returncode}")
    print(hf.run(bot("Mail Ada and Bo."), id="mails"))
