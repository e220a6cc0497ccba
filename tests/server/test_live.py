"""Changes as they happen: nobody misses one, and nobody who does not read holds up the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from holdfast.server import create_app
from holdfast.server import live as live_module
from holdfast.server.feed import News
from holdfast.server.live import BACKLOG, LISTENERS, EventStream, Live
from holdfast.server.problems import Problem
from holdfast.server.security.headers import HEADERS
from holdfast.server.serving import Address, Serving, sockets_at
from tests.eventually import eventually
from tests.server.scene import TOKEN, Scene, played


class Stream:
    """An event stream, read as a browser does."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last_id = ""

    async def next(self) -> tuple[str, Any]:
        """The next event: what it is, and what it says."""
        event, text = "", ""
        async with asyncio.timeout(60):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "id":
                    self.last_id = value
                elif name == "event":
                    event = value
                elif name == "data":
                    text = value
                elif not line and text:
                    return event, json.loads(text)
        raise AssertionError("the stream ended")

    async def until(self, event: str, **facts: Any) -> Any:
        while True:
            found, told = await self.next()
            if found == event and all(told.get(name) == value for name, value in facts.items()):
                return told


@asynccontextmanager
async def served(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    """The API of a scene, on a socket."""
    place = Address(port=0)
    sockets = sockets_at(place)
    port = sockets[0].getsockname()[1]
    serving = Serving(scene.api, place)
    task = asyncio.create_task(serving.serve(sockets, lambda: None, on_signals=False))
    headers = {"authorization": f"Bearer {TOKEN}", "host": "localhost:7788"}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, timeout=60) as client:
            yield client
    finally:
        serving.stop()
        await task


@asynccontextmanager
async def listening(client: httpx.AsyncClient, topics: str, last_id: str = "") -> AsyncIterator[Stream]:
    headers = {"last-event-id": last_id} if last_id else {}
    async with client.stream("GET", "/stream", params={"topics": topics}, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["x-accel-buffering"] == "no"
        yield Stream(answer.aiter_lines())


def test_who_comes_back_misses_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with served(scene) as client:
            async with listening(client, "runs,questions") as stream:
                await scene.post("/runs", {"agent": "refund", "id": "q1", "input": {"customer": "ada"}}, 201)
                await stream.until("run", id="q1", status="waiting")
            question = (await scene.get("/questions"))["items"][0]
            # While nobody listens: one run is answered and ends, another comes and ends.
            await scene.post(f"/questions/{question['id']}/answer", {"value": True, "shown": question["shown"]})
            await scene.until("q1", "done")
            await scene.start("echo", "e1", "done")
            seen: set[tuple[str, str]] = set()
            async with listening(client, "runs,questions", stream.last_id) as again:
                while not {("q1", "done"), ("e1", "done"), (question["id"], "answered")} <= seen:
                    event, told = await again.next()
                    assert event != "resync"
                    seen.add((told["id"], told.get("status") or told.get("state")))

    played(tmp_path, play)


def test_who_comes_back_to_another_process_gets_the_runs_that_moved_meanwhile(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("refund", "old", "waiting", customer="ada")
        await scene.start("echo", "untouched", "done")
        async with served(scene) as client, listening(client, "runs") as stream:
            await scene.start("echo", "first", "done")
            await stream.until("run", id="first", status="done")
        question = (await scene.get("/questions"))["items"][0]
        await scene.post(f"/questions/{question['id']}/answer", {"value": True, "shown": question["shown"]})
        await scene.until("old", "done")
        await scene.start("failing", "new", "failed")
        scene.api = create_app(scene.app, access=scene.access)
        seen: dict[str, str] = {}
        async with served(scene) as client:
            async with listening(client, "runs", stream.last_id) as again:
                while seen.get("old") != "done" or seen.get("new") != "failed":
                    event, told = await again.next()
                    assert event == "run"
                    seen[told["id"]] = told["status"]
            assert "untouched" not in seen
            async with listening(client, "runs,questions", stream.last_id) as both:
                assert await both.next() == ("resync", {}), "what was asked and decided meanwhile is not known"

    played(tmp_path, play)


def test_an_id_of_another_life_or_from_too_long_ago_means_reading_again(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with served(scene) as client:
            for last in (
                "0123456789ab-5",
                "nonsense",
                "-",
                f"{scene.api.state.service.live.cursor.partition('-')[0]}-9-",
            ):
                async with listening(client, "runs", last) as stream:
                    assert await stream.next() == ("resync", {})
            live: Live = scene.api.state.service.live
            before = f"{live.cursor.rpartition('-')[0]}-"
            for number in range(2_100):
                live.publish(News("gone", {"id": str(number)}, str(number), is_lasting=True))
            async with listening(client, "runs", before) as stream:
                assert await stream.next() == ("resync", {})

    played(tmp_path, play, options={"executes": False})


def test_a_run_is_watched_call_by_call(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("summing", "s1", "waiting", times=3)
        async with served(scene) as client, listening(client, "run:s1") as stream:
            event, state = await stream.next()
            assert (event, state["id"]) == ("progress", "s1")
            head = state["head"]
            for value in range(3):
                await scene.post("/runs/s1/signals", {"name": "number", "value": value}, 202)
            calls: dict[int, Any] = {}
            while True:
                event, told = await stream.next()
                if event == "calls":
                    assert told["after"] <= head, "a gap would be seen"
                    head = told["head"]
                    for seq, status in zip(told["calls"]["seq"], told["calls"]["status"], strict=True):
                        calls[seq] = told["statuses"][status]
                    if head == (await scene.get("/runs/s1"))["records"] and set(calls.values()) == {"done"}:
                        break
            assert len(calls) == 3

    played(tmp_path, play)


def test_who_cannot_listen_asks_again_and_again(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        first = await scene.http.get("/api/v1/stream?topics=runs&wait=0")
        assert first.json() == []
        cursor, seen = first.headers["last-event-id"], set()
        await scene.start("echo", "e1", "done")
        while ("e1", "done") not in seen:
            answer = await scene.http.get("/api/v1/stream?topics=runs&wait=20", headers={"last-event-id": cursor})
            cursor = answer.headers["last-event-id"]
            seen |= {(each["data"]["id"], each["data"].get("status")) for each in answer.json()}
        for topics in ("", "nothing", "run:", "runs,stream:x/y", "," * 3):
            await scene.get(f"/stream?topics={topics}&wait=0", 400)
        await scene.get("/stream?wait=26", 400)

    played(tmp_path, play)


class Told:
    """A feed that tells what it is told."""

    cursor = "s0"

    async def since(self, cursor: str) -> list[News] | None:
        return None

    def __init__(self) -> None:
        self.news: list[News] = []
        self.looks = 0

    async def look(self, watched: Collection[str]) -> list[News]:
        self.looks += 1
        found, self.news = self.news, []
        return found

    async def state(self, run_id: str) -> News | None:
        return None


def test_who_does_not_read_is_cut_off_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "LOOK_S", 0.005)

    async def go() -> None:
        live = Live(Told(), look_s=0.005)
        idle = await live.listen(["runs"], None)
        busy = await live.listen(["runs"], None)
        heard: list[int] = []
        stuck = asyncio.Event()

        async def never(message: Any) -> None:
            if message["type"] == "http.response.body":
                stuck.set()
                await asyncio.Event().wait()  # a socket that takes no more

        async def silent() -> Any:
            await asyncio.Event().wait()

        answering = asyncio.create_task(EventStream(live, idle)({}, silent, never))
        await stuck.wait()
        count = BACKLOG // 10_000 + 10
        for number in range(count):
            live.publish(News("run", {"number": number, "text": "x" * 10_000}, str(number), is_lasting=True))
            heard += [event.news.data["number"] for event in await busy.take(5)]
        await asyncio.wait_for(answering, 60)
        assert idle.is_cut
        assert heard == list(range(count))
        back = await live.listen(["runs"], idle.cursor)  # what it missed is still known here, and is more than may wait
        assert [event.news.event for event in await back.take(5)] == ["resync"]
        assert back.cursor == live.cursor
        live.leave(back)
        live.leave(busy)

    asyncio.run(go())


def test_so_many_listen_and_no_more(tmp_path: Path) -> None:
    async def go() -> None:
        feed = Told()
        live = Live(feed, look_s=0.005)
        listeners = [await live.listen(["runs"], None) for _ in range(LISTENERS)]
        with pytest.raises(Problem, match="listen already"):
            await live.listen(["runs"], None)
        looked = feed.looks
        await eventually(lambda: feed.looks > looked + 3)
        for each in listeners:
            live.leave(each)
        await asyncio.sleep(0)
        looked = feed.looks
        await asyncio.sleep(0.05)
        assert feed.looks == looked, "nobody listens, nobody looks"

    asyncio.run(go())


def test_a_stream_begins_with_an_id_and_goes_on_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "COMMENT_S", 0.01)

    async def go() -> None:
        live = Live(Told(), look_s=0.005)
        sent: list[bytes] = []

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        async def receive() -> Any:
            await eventually(lambda: len(sent) > 4)
            return {"type": "http.disconnect"}

        await EventStream(live, await live.listen(["runs"], None))({}, receive, send)
        assert sent[1] == f"retry: 2000\nid: {live.cursor}\n\n".encode()
        assert set(sent[2:]) == {b": here\n\n"}

    asyncio.run(go())
