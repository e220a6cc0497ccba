"""An agent of Google's Agent Development Kit that is killed after a tool has acted, and goes on.

python examples/adk_bot.py

The model is a table, so nothing is sent anywhere. It gives its calls no ids, as Gemini does.
"""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

import holdfast as hf
from holdfast.ext.adk import durable, durable_tool

OUTBOX = Path("outbox.txt")


class Deciding(BaseLlm):
    """What a model would: mail two people, then say so."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        said = [types.Part.from_function_call(name="mail", args={"to": name}) for name in ("ada", "bo")]
        if any(part.function_response for part in llm_request.contents[-1].parts or []):
            said = [types.Part(text="Ada and Bo have mail.")]
        used = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=5)
        yield LlmResponse(content=types.Content(role="model", parts=said), usage_metadata=used)


async def find_sent(shown: dict[str, Any]) -> hf.Verdict[str]:
    """Asked about a mail that may or may not be out."""
    print(f"in doubt: was {shown['to']} mailed?")
    sent = OUTBOX.read_text().split() if OUTBOX.exists() else []
    return hf.landed(f"sent to {shown['to']}") if shown["to"] in sent else hf.not_landed()


async def mail(to: str) -> str:
    """Send a mail."""
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{to}\n")
    return f"sent to {to}"


tools = [durable_tool(mail, verify=find_sent, settle=0)]
bot = durable(LlmAgent(name="poster", model=Deciding(model="table"), tools=tools))

if __name__ == "__main__":
    if not OUTBOX.exists() and "HOLDFAST_FAULT" not in os.environ:
        killed = os.environ | {"HOLDFAST_FAULT": "effect.after_body:kill"}
        process = subprocess.run([sys.executable, __file__], env=killed, check=False)
        print(f"the first process ended with {process.returncode}")
    print(hf.run(bot("Mail Ada and Bo."), id="mails"))
