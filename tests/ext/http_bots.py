"""An agent that uses the OpenAI SDK as it is, over the durable transport; its model is the scripted server."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import httpx2
import openai

import holdfast as hf
from holdfast.ext.http import async_transport, transport
from tests.ext.letters import asked, send, told
from tests.ext.living import here, note


@hf.effect
async def mail(to: str) -> str:
    note(f"mail {to}")
    return f"sent {to}"


@hf.agent
async def chat(text: str) -> str:
    http = httpx2.AsyncClient(transport=async_transport(httpx2, prices={"scripted": (1.0, 2.0)}))
    model = openai.AsyncOpenAI(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="-", max_retries=0, http_client=http)
    messages: list[Any] = [{"role": "user", "content": text}]
    async with model:
        while True:
            answer = (await model.chat.completions.create(model="m", messages=messages)).choices[0].message
            messages.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                return str(answer.content)
            for call in answer.tool_calls:
                assert call.type == "function"
                done = await mail(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": done})


@hf.agent
async def stream(text: str) -> list[str]:
    http = httpx2.AsyncClient(transport=async_transport(httpx2))
    async with openai.AsyncOpenAI(
        base_url=f"{os.environ['MODEL_URL']}/v1", api_key="-", max_retries=0, http_client=http
    ) as model:
        chunks = await model.chat.completions.create(
            model="m", messages=[{"role": "user", "content": text}], stream=True
        )
        said = []
        async for chunk in chunks:
            said.append(chunk.choices[0].delta.content or "")
            here("part")
    await hf.ask("Go on?")
    return said


@hf.agent
async def plainly(text: str) -> str:
    def ask() -> str:
        with openai.OpenAI(
            base_url=f"{os.environ['MODEL_URL']}/v1",
            api_key="-",
            max_retries=0,
            http_client=httpx2.Client(transport=transport(httpx2)),
        ) as model:
            answer = model.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            return str(answer.choices[0].message.content)

    said = await asyncio.to_thread(ask)
    await hf.ask("Go on?")
    return said


class Noting(httpx2.AsyncHTTPTransport):
    """Notes each request when its answer has come, and nobody knows of it yet."""

    async def handle_async_request(self, request: Any) -> Any:
        response = await super().handle_async_request(request)
        messages = json.loads(request.content)["messages"]
        asked(messages[0]["content"], sum(each["role"] == "assistant" for each in messages) + 1)
        return response


letter = hf.effect(name="letter", settle=0)(send)


@hf.agent
async def write(name: str) -> str:
    """The script of the model says for whom letters are; the run, from whom."""
    http = httpx2.AsyncClient(transport=async_transport(httpx2, Noting()))
    model = openai.AsyncOpenAI(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="-", max_retries=0, http_client=http)
    messages: list[Any] = [{"role": "user", "content": name}]
    async with model:
        while True:
            answer = (await model.chat.completions.create(model="m", messages=messages)).choices[0].message
            messages.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                return told([str(each["content"]) for each in messages if each["role"] == "tool"])
            to = [json.loads(call.function.arguments)["to"] for call in answer.tool_calls if call.type == "function"]
            done = await asyncio.gather(*(letter(f"{name}-{each}") for each in to))
            for call, result in zip(answer.tool_calls, done, strict=True):
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
