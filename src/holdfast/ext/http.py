"""A durable transport for httpx and httpx2: the requests of any SDK that is built on them are steps.

    import httpx2
    from holdfast.ext.http import async_transport

    client = openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=async_transport(httpx2)), max_retries=0)

A request is known by its digest and its count in the run, wherever it is made: `http/key:1f0c….1`. 429 and 5xx are
tried again later, as `Retry-After` says, without a process that waits; so the SDK's retries are to be off. A stream is
handed on as it comes, and played back on replay. Outside of a run requests are plain.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import holdfast as hf
from holdfast import ext

_COUNTS: Final = "http"
_LATER: Final = frozenset({429, 500, 502, 503, 504, 529})
#: What is of a connection, and not of the answer.
_PASSING: Final = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})
_TRIES: Final = 6
_FIRST_S: Final = 0.5


class _Answer:
    """What came back, as it is stored."""

    def __init__(self, status: int, headers: list[tuple[str, str]], parts: list[bytes]) -> None:
        self.status, self.headers, self.parts = status, headers, parts


def _dump(answer: _Answer) -> Any:
    parts: list[Any] = []
    for part in answer.parts:
        try:
            parts.append(part.decode())
        except UnicodeDecodeError:
            parts.append([base64.b64encode(part).decode()])
    return {"status": answer.status, "headers": [list(each) for each in answer.headers], "parts": parts}


def _load(stored: Any) -> _Answer:
    parts = [part.encode() if isinstance(part, str) else base64.b64decode(part[0]) for part in stored["parts"]]
    return _Answer(stored["status"], [(name, value) for name, value in stored["headers"]], parts)


class _Requests:
    """What both transports share: how requests are named, and what becomes of answers."""

    def __init__(
        self, http: ModuleType, *, tries: int, prices: Mapping[str, tuple[float, float]], is_async: bool
    ) -> None:
        self.http = http
        self.tries = tries
        self.prices = prices
        errors = (http.TransportError,)
        self.operation = ext.Operation(
            "http", codec=ext.Codec(_dump, _load), raises=errors, retries=2, retry_on=errors, is_async=is_async
        )

    def key(self, request: Any, content: bytes) -> str:
        mark = hashlib.sha256(f"{request.method} {request.url}\n".encode() + content).hexdigest()[:16]
        counts: dict[str, int] = ext.local().setdefault(f"{_COUNTS}{ext.turn()}", {})
        counts[mark] = counts.get(mark, 0) + 1
        return f"{mark}.{counts[mark]}"

    def shown(self, request: Any, content: bytes) -> dict[str, Any]:
        return {"request": f"{request.method} {request.url.copy_with(query=None)}", "bytes": len(content)}

    def prepare(self, request: Any) -> None:
        """In the body: what it sends besides."""
        if request.method != "GET":
            request.headers.setdefault("Idempotency-Key", hf.this_step().idempotency_key)

    def check(self, response: Any) -> None:
        """Too busy is no answer: it is asked again later, so often."""
        attempt = hf.this_step().attempt
        if response.status_code in _LATER and attempt < self.tries:
            said = response.headers.get("retry-after-ms"), response.headers.get("retry-after")
            raise hf.RetryLater(_seconds(*said) or _FIRST_S * 2 ** (attempt - 1))

    def note_usage(self, answer: _Answer) -> None:
        """What a model says it has used, where it is one."""
        found = _usage(b"".join(answer.parts))
        if found is None:
            return
        model, given, made = found
        price = next((self.prices[name] for name in self.prices if model.startswith(name)), (0.0, 0.0))
        cost = (given * price[0] + made * price[1]) / 1_000_000
        hf.usage(model=model, input_tokens=given, output_tokens=made, cost=cost)

    def response(self, request: Any, answer: _Answer, stream: Any = None) -> Any:
        kept = [(name, value) for name, value in answer.headers if name.lower() not in _PASSING]
        if stream is not None:
            return self.http.Response(answer.status, headers=kept, stream=stream, request=request)
        return self.http.Response(answer.status, headers=kept, content=b"".join(answer.parts), request=request)


def _seconds(milliseconds: str | None, seconds: str | None) -> float | None:
    try:
        return float(milliseconds) / 1000 if milliseconds else float(seconds) if seconds else None
    except ValueError:  # a date; those who send one are patient
        return None


def _usage(content: bytes) -> tuple[str, int, int] | None:
    """Model, tokens in and out, of a JSON answer or of the events of a stream."""
    texts = [content] if content[:1] == b"{" else [line[6:] for line in content.splitlines() if line[:7] == b"data: {"]
    model, given, made = "", 0, 0
    for text in texts:
        try:
            said = json.loads(text)
        except ValueError:
            return None
        for part in (said, said.get("message"), said.get("response")):
            if not isinstance(part, dict):
                continue
            model = part.get("model") or model
            usage = part.get("usage")
            if isinstance(usage, dict):
                given = usage.get("prompt_tokens") or usage.get("input_tokens") or given
                made = usage.get("completion_tokens") or usage.get("output_tokens") or made
    return (str(model), int(given), int(made)) if given or made else None


def async_transport(
    http: ModuleType, inner: Any = None, *, tries: int = _TRIES, prices: Mapping[str, tuple[float, float]] | None = None
) -> Any:
    """An `AsyncBaseTransport` of `http`, which is the module httpx or httpx2; `inner` sends what is not recorded.

    `tries`: how often a request is sent that is told to come later. `prices`: of a million tokens in and out, by the
    beginning of a model's name, for the cost of the run.

    Example: `httpx2.AsyncClient(transport=async_transport(httpx2, prices={"gpt-5": (1.25, 10)}))`
    """
    requests = _Requests(http, tries=tries, prices=prices or {}, is_async=True)
    sends = inner or http.AsyncHTTPTransport()

    class Played(http.AsyncByteStream):  # type: ignore[name-defined, misc]
        """What is left of a stream: live, or from the journal."""

        def __init__(self, arrived: asyncio.Queue[bytes | None], task: asyncio.Task[_Answer]) -> None:
            self._arrived, self._task = arrived, task

        async def __aiter__(self) -> AsyncIterator[bytes]:
            told = 0
            while (part := await self._arrived.get()) is not None:
                told += 1
                yield part
            for part in (await self._task).parts[told:]:
                yield part

        async def aclose(self) -> None:
            self._task.cancel()

    class DurableTransport(http.AsyncBaseTransport):  # type: ignore[name-defined, misc]
        async def handle_async_request(self, request: Any) -> Any:
            if not ext.active():
                return await sends.handle_async_request(request)
            content = await request.aread()
            arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
            head: asyncio.Queue[_Answer] = asyncio.Queue()

            async def send() -> _Answer:
                requests.prepare(request)
                response = await sends.handle_async_request(request)
                try:
                    requests.check(response)
                    answer = _Answer(response.status_code, list(response.headers.multi_items()), [])
                    head.put_nowait(answer)
                    async for part in response.aiter_bytes():
                        answer.parts.append(part)
                        arrived.put_nowait(part)
                finally:
                    await response.aclose()
                requests.note_usage(answer)
                return answer

            key = requests.key(request, content)

            async def recorded() -> _Answer:
                try:
                    with ext.place("http", sealed=True):
                        answer = await requests.operation(send, key=key, shown=requests.shown(request, content))
                    head.put_nowait(answer)
                    return answer
                finally:
                    arrived.put_nowait(None)

            if not _streams(request, content):
                return requests.response(request, await recorded())
            task = asyncio.create_task(recorded())
            first = asyncio.create_task(head.get())
            await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                first.cancel()
                return requests.response(request, await task)  # raises
            return requests.response(request, await first, Played(arrived, task))

        async def aclose(self) -> None:
            await sends.aclose()

    return DurableTransport()


def transport(
    http: ModuleType, inner: Any = None, *, tries: int = _TRIES, prices: Mapping[str, tuple[float, float]] | None = None
) -> Any:
    """As `async_transport`, for a plain client, in threads of a run: the answer comes when all of it is there.

    Example: `httpx2.Client(transport=transport(httpx2))`
    """
    requests = _Requests(http, tries=tries, prices=prices or {}, is_async=False)
    sends = inner or http.HTTPTransport()

    class Parts(http.SyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(self, parts: list[bytes]) -> None:
            self._parts = parts

        def __iter__(self) -> Iterator[bytes]:
            return iter(self._parts)

    class DurableTransport(http.BaseTransport):  # type: ignore[name-defined, misc]
        def handle_request(self, request: Any) -> Any:
            if not ext.active():
                return sends.handle_request(request)
            content = request.read()

            def send() -> _Answer:
                requests.prepare(request)
                response = sends.handle_request(request)
                try:
                    requests.check(response)
                    parts = list(response.iter_bytes())
                finally:
                    response.close()
                answer = _Answer(response.status_code, list(response.headers.multi_items()), parts)
                requests.note_usage(answer)
                return answer

            async def recorded() -> _Answer:
                key = requests.key(request, content)
                with ext.place("http", sealed=True):
                    return await requests.operation(send, key=key, shown=requests.shown(request, content))  # type: ignore[arg-type]

            answer = ext.from_thread(recorded())
            return requests.response(request, answer, Parts(answer.parts) if _streams(request, content) else None)

        def close(self) -> None:
            sends.close()

    return DurableTransport()


def _streams(request: Any, content: bytes) -> bool:
    is_asked = b'"stream":true' in content or b'"stream": true' in content
    return is_asked or "text/event-stream" in request.headers.get("accept", "")
