"""A loop over the OpenAI SDK as it is: its requests are steps, because its transport is durable.

python examples/openai_sdk_bot.py

The model is the scripted server of `holdfast.testing`, which is too busy at first. The loop knows nothing of that.
"""

import os
from pathlib import Path
from typing import Any

import httpx2
import openai

import holdfast as hf
from holdfast.ext.http import async_transport
from holdfast.ext.tools import Tools, tool
from holdfast.testing.model_server import ModelServer, Turn

OUTBOX = Path("outbox.txt")
SCRIPT = [Turn(calls=[("mail", {"to": "ada"})], error=429, retry_after=0.1), Turn(say="Ada has mail.")]


@tool
async def mail(to: str) -> str:
    """Send a mail."""
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{to}\n")
    return f"sent to {to}"


tools = Tools(mail)


@hf.agent
async def bot(text: str) -> str:
    http = httpx2.AsyncClient(transport=async_transport(httpx2))
    messages: list[Any] = [{"role": "user", "content": text}]
    async with openai.AsyncOpenAI(
        base_url=f"{os.environ['MODEL_URL']}/v1", api_key="-", max_retries=0, http_client=http
    ) as model:
        while True:
            said = await model.chat.completions.create(model="any", messages=messages, tools=tools.openai())
            answer = said.choices[0].message
            if not answer.tool_calls:
                return answer.content or ""
            messages.append(answer.model_dump(exclude_none=True))
            for call in answer.tool_calls:
                done = await tools.call(call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": done})


if __name__ == "__main__":
    with ModelServer(SCRIPT) as server:
        os.environ["MODEL_URL"] = server.url
        print(hf.run(bot("Mail Ada."), id="mail-ada"))
