"""The local model server: what SDKs make of it, as they would of the real one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from holdfast.errors import UsageError
from holdfast.testing.model_server import ModelServer, Turn

SCRIPT = [
    Turn(calls=[("mail", {"to": "ada"}), ("mail", {"to": "bo"})]),
    Turn(say="all is sent", error=429, retry_after=2),
]
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def client(server: ModelServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)


def test_it_calls_tools_fails_once_and_answers() -> None:
    async def main(server: ModelServer) -> None:
        async with client(server) as model:
            first = await model.chat.completions.create(model="m", messages=HELLO)
            calls = first.choices[0].message.tool_calls or []
            assert [json.loads(call.function.arguments) for call in calls if call.type == "function"] == [
                {"to": "ada"},
                {"to": "bo"},
            ]
            more: list[Any] = [*HELLO, first.choices[0].message.model_dump(exclude_none=True)]
            with pytest.raises(openai.RateLimitError) as late:
                await model.chat.completions.create(model="m", messages=more)
            assert late.value.response.headers["retry-after"] == "2"
            last = await model.chat.completions.create(model="m", messages=more)
            assert last.choices[0].message.content == "all is sent"
            again = await model.chat.completions.create(model="m", messages=HELLO)
            assert (again.choices[0].message.tool_calls or [])[0].id != calls[0].id

    with ModelServer(SCRIPT) as server:
        asyncio.run(main(server))
        assert [each["turn"] for each in server.requests] == [0, 1, 1, 0]


def test_it_streams_and_breaks_off_once() -> None:
    async def streamed(model: openai.AsyncOpenAI) -> str:
        stream = await model.chat.completions.create(model="m", messages=HELLO, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def main(server: ModelServer) -> None:
        async with client(server) as model:
            with pytest.raises((openai.APIError, httpx2.HTTPError)):
                await streamed(model)
            assert await streamed(model) == "one two three"

    with ModelServer([Turn(say="one two three", disconnect=2)]) as server:
        asyncio.run(main(server))


def test_it_speaks_as_anthropic_does_and_reads_its_script_from_a_file(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"calls": [{"name": "mail", "arguments": {"to": "ada"}}]}, {"say": "sent it"}]))

    async def ask(server: ModelServer, **body: Any) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        text = json.dumps(body)
        writer.write(f"POST /v1/messages?beta=true HTTP/1.1\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return answer.partition("\r\n\r\n")[2]

    async def main(server: ModelServer) -> None:
        first = json.loads(await ask(server, messages=HELLO))
        assert first["content"][0]["id"] == "call_0"
        assert first["stop_reason"] == "tool_use"
        said = await ask(server, messages=[*HELLO, {"role": "assistant", "content": []}], stream=True)
        events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: ")]
        texts = [each["delta"]["text"] for each in events if each["type"] == "content_block_delta"]
        assert "".join(texts) == "sent it"
        assert events[-1]["type"] == "message_stop"

    with ModelServer(script, ids="repeat") as server:
        asyncio.run(main(server))


def test_a_script_without_turns_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one turn"), ModelServer([]):
        pass
