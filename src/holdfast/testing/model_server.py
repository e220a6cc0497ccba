"""A model for tests and demonstrations: a local server that speaks as OpenAI's and Anthropic's do, from a script.

The script is a list of turns. A request gets the turn after as many as its messages show, so that the answer depends on
what was said and on nothing else: a program that was killed and asks again gets the same one. What goes wrong on
purpose goes wrong once for each request that is the first of its turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.errors import UsageError

_LONGEST: Final = 32 * 1024 * 1024
_MODEL: Final = "scripted-1"


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says to one request: a text, or calls of tools as (name, arguments).

    `error` is a status to answer the first request of the turn with, `retry_after` its header in seconds, `slow` the
    seconds before each piece of a stream, `disconnect` after how many pieces the first stream of the turn breaks off.

    Example: `Turn(calls=[("mail", {"to": "ada"})], error=429, retry_after=0.1)`
    """

    say: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    error: int | None = None
    retry_after: float | None = None
    slow: float = 0.0
    disconnect: int | None = None


@dataclass(slots=True)
class ModelServer:
    """The server, while the block lasts. `url` is what a client takes as its base URL, `requests` what was asked.

    `script` is turns, or a file with a JSON list of them. `ids` of tool calls are "random", or "repeat" from turn to
    turn, as some providers' do.

    Example:
        with ModelServer([Turn(calls=[("mail", {"to": "ada"})]), Turn(say="done")]) as server:
            client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)
    """

    script: Sequence[Turn] | str | os.PathLike[str]
    ids: Literal["random", "repeat"] = "random"
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    _turns: Sequence[Turn] = ()
    _failed: set[int] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None

    def __enter__(self) -> ModelServer:
        self._turns = _read(self.script)
        self._loop = asyncio.new_event_loop()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LONGEST))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, args=(server,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, server: asyncio.Server) -> None:
        assert self._loop is not None
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            headers = {
                name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
            await self._answer(writer, first.split()[1].partition("?")[0], headers=headers, body=body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # whoever asked is gone
        finally:
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, path: str, *, headers: dict[str, str], body: dict[str, Any]
    ) -> None:
        is_anthropic = path.endswith("/messages")
        if not is_anthropic and not path.endswith("/chat/completions"):
            _write(writer, 404, {"error": {"message": f"{path} is not scripted", "type": "not_found"}})
            return
        number = sum(each.get("role") == "assistant" for each in body.get("messages", []))
        self.requests.append({"path": path, "turn": number, "headers": headers, "body": body})
        turn = self._turns[min(number, len(self._turns) - 1)]
        is_first = number not in self._failed
        self._failed.add(number)
        if turn.error is not None and is_first:
            after = {} if turn.retry_after is None else {"retry-after": f"{turn.retry_after:g}"}
            _write(writer, turn.error, {"error": {"message": "scripted", "type": "scripted"}}, more=after)
            return
        message = (_anthropic if is_anthropic else _openai)(turn, self._ids(number, len(turn.calls)))
        if not body.get("stream"):
            _write(writer, 200, message)
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        pieces = _anthropic_stream(message) if is_anthropic else _openai_stream(message)
        sent = 0
        async for piece in _slowly(pieces, turn.slow):
            if turn.disconnect is not None and is_first and sent >= turn.disconnect:
                writer.transport.abort()
                return
            data = piece.encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))  # a stream that breaks off is not one that has ended
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")

    def _ids(self, number: int, count: int) -> list[str]:
        if self.ids == "repeat":
            return [f"call_{index}" for index in range(count)]
        return [f"call_{os.urandom(6).hex()}" for _ in range(count)]


def _read(script: Sequence[Turn] | str | os.PathLike[str]) -> Sequence[Turn]:
    if not isinstance(script, str | os.PathLike):
        turns = script
    else:
        found = json.loads(Path(script).read_text("utf-8"))
        turns = [
            Turn(**{**each, "calls": [(call["name"], call["arguments"]) for call in each.get("calls", ())]})
            for each in found
        ]
    if not turns:
        raise UsageError("ModelServer takes a script of at least one turn.")
    return turns


async def _slowly(pieces: Sequence[str], wait_s: float) -> AsyncIterator[str]:
    for piece in pieces:
        await asyncio.sleep(wait_s)
        yield piece


def _write(writer: asyncio.StreamWriter, status: int, body: Any, *, more: Mapping[str, str] | None = None) -> None:
    text = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Scripted", "content-type: application/json", f"content-length: {len(text)}"]
    lines += [f"{name}: {value}" for name, value in (more or {}).items()] + ["connection: close", "", ""]
    writer.write("\r\n".join(lines).encode() + text)


def _usage(turn: Turn) -> int:
    return max(1, len(turn.say.split()) + 4 * len(turn.calls))


def _openai(turn: Turn, ids: Sequence[str]) -> dict[str, Any]:
    calls = [
        {"id": each, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for each, (name, arguments) in zip(ids, turn.calls, strict=True)
    ]
    message = {"role": "assistant", "content": turn.say or None, **({"tool_calls": calls} if calls else {})}
    return {
        "id": f"chatcmpl-{os.urandom(6).hex()}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": _MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": _usage(turn), "total_tokens": 10 + _usage(turn)},
    }


def _openai_stream(whole: dict[str, Any]) -> list[str]:
    message, end = whole["choices"][0]["message"], whole["choices"][0]["finish_reason"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": f"{word} "} for word in (message["content"] or "").split(" ") if word]
    if message["content"]:
        deltas[-1]["content"] = deltas[-1]["content"].rstrip()
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(message.get("tool_calls", ()))]
    head = {key: whole[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    chunks = [{**head, "choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": whole["usage"]})
    return [*(f"data: {json.dumps(each)}\n\n" for each in chunks), "data: [DONE]\n\n"]


def _anthropic(turn: Turn, ids: Sequence[str]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": turn.say}] if turn.say or not turn.calls else []
    content += [
        {"type": "tool_use", "id": each, "name": name, "input": dict(arguments)}
        for each, (name, arguments) in zip(ids, turn.calls, strict=True)
    ]
    return {
        "id": f"msg_{os.urandom(6).hex()}",
        "type": "message",
        "role": "assistant",
        "model": _MODEL,
        "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": _usage(turn)},
    }


def _anthropic_stream(whole: dict[str, Any]) -> list[str]:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
    ]
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        pieces = (
            [
                {"type": "text_delta", "text": f"{' ' if at else ''}{word}"}
                for at, word in enumerate(block["text"].split(" "))
            ]
            if is_text
            else [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        )
        events += [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append(
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": whole["usage"]["output_tokens"]}}
    )
    events.append({"type": "message_stop"})
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events]
