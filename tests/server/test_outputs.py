"""What runs keep and put out, through the API: states, artifacts, streams, plans, receipts, forks, threads."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import pytest
from pydantic import BaseModel

from holdfast.server import output_shapes, shapes
from holdfast.server.security.people import Role
from tests.eventually import eventually
from tests.server.agents import LARGE
from tests.server.scene import Scene, played


def fits(shape: type[BaseModel], found: Any) -> Any:
    shape.model_validate(found)
    return found


async def keeping(scene: Scene) -> str:
    """A run that waits in its third turn and has something of everything."""
    await scene.post("/runs", {"agent": "keeper", "id": "k", "thread_id": "chat/7"}, 201)
    for number in (4, 5):
        await scene.post("/runs/k/signals", {"name": "number", "value": number}, 202)

    async def is_there() -> bool:
        run = await scene.get("/runs/k")
        return bool(run["status"] == "waiting" and (await scene.get("/runs/k/checkpoints"))["items"][-1]["turn"] == 3)

    await eventually(is_there)
    return "k"


def test_states_and_their_differences(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await keeping(scene)
        page = fits(output_shapes.Checkpoints, await scene.get("/runs/k/checkpoints?limit=2"))
        assert [each["turn"] for each in page["items"]] == [1, 2]
        rest = await scene.get(f"/runs/k/checkpoints?after={page['next']}")
        assert ([each["turn"] for each in rest["items"]], rest["next"]) == ([3], None)
        assert fits(output_shapes.State, await scene.get("/runs/k/state"))["state"]["json"] == '{"seen": [4, 5]}'
        assert (await scene.get("/runs/k/state?turn=1"))["state"]["json"] == '{"seen": []}'
        found = fits(output_shapes.Difference, await scene.get("/runs/k/diff?a=2&b=3"))
        assert found["items"] == [
            {"path": "seen[1]", "kind": "added", "before_json": None, "after_json": "5", "truncated": False}
        ]
        assert (await scene.get("/runs/k/state?turn=9", 404))["type"] == "/problems/no_such_turn"
        assert (await scene.get("/runs/k/diff?a=1&b=9", 404))["turns"] == 3
        await scene.get("/runs/k/diff?a=1", 400)

    played(tmp_path, play)


@pytest.mark.corrupts
def test_artifacts_are_listed_and_downloaded_as_what_they_are_and_nothing_else(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await keeping(scene)
        found = fits(output_shapes.Artifacts, await scene.get("/runs/k/artifacts?check=true"))
        assert [(each["kind"], each["name"], each["state"]) for each in found["items"]] == [
            ("record", "journal", "stored"),
            ("file", "a/<b>.html", "stored"),
            ("link", "request", "stored"),
            ("plan", "todo.md", "stored"),
            ("message", "chat/7/1", "stored"),
        ]
        page = await scene.get("/runs/k/artifacts?after=1&limit=2")
        assert ([each["name"] for each in page["items"]], page["next"]) == (["a/<b>.html", "request"], 3)
        path = f"/api/v1/runs/k/artifacts/{quote('a/<b>.html', safe='')}"
        answer = await scene.http.get(path)
        assert answer.content == LARGE
        digest = hashlib.sha256(LARGE).hexdigest()
        assert answer.headers["etag"] == f'"{digest}"'
        assert answer.headers["content-length"] == str(len(LARGE))
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == 'attachment; filename="_b_.html"'
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert (await scene.http.get(path, headers={"if-none-match": f'"{digest}"'})).status_code == 304
        todo = await scene.http.get("/api/v1/runs/k/artifacts/todo.md")
        assert todo.text.startswith("# Plan of k")
        assert (await scene.get("/runs/k/artifacts/request", 409))["type"] == "/problems/no_bytes"
        assert (await scene.get("/runs/k/artifacts/other", 404))["type"] == "/problems/no_such_artifact"
        assert (await scene.get("/runs/k/artifacts/todo.md?version=99", 404))["type"] == "/problems/no_such_artifact"

    played(tmp_path, play)
    with apsw.Connection(str(tmp_path / "store.db")) as connection:
        connection.execute("DELETE FROM chunks WHERE length(data) = 4")

    async def look(scene: Scene) -> None:
        path = f"/runs/k/artifacts/{quote('a/<b>.html', safe='')}"
        assert (await scene.get(path, 409))["type"] == "/problems/damaged_file"
        listed = await scene.get("/runs/k/artifacts?check=true")
        assert [each["state"] for each in listed["items"] if each["kind"] == "file"] == ["missing"]

    played(tmp_path, look, options={"executes": False})


def test_a_stream_is_read_from_an_offset_on(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await keeping(scene)
        assert fits(output_shapes.Streams, await scene.get("/runs/k/streams"))["items"] == [{"name": "out", "last": 3}]
        found = fits(output_shapes.StreamEvents, await scene.get("/runs/k/streams/out"))
        assert [(each["number"], each["kind"], each["text"]) for each in found["items"]] == [
            (1, "text", "one "),
            (2, "text", "two"),
            (3, "end", ""),
        ]
        first = await scene.get("/runs/k/streams/out?after=0&limit=1")
        assert (first["last"], first["is_more"], first["is_over"]) == (1, True, False)
        rest = await scene.get("/runs/k/streams/out?after=1")
        assert ([each["number"] for each in rest["items"]], rest["is_more"]) == ([2, 3], False)
        assert (await scene.get("/runs/k/streams/out?after=3"))["items"] == []
        assert (await scene.get("/runs/k/streams/other", 404))["type"] == "/problems/no_such_stream"
        accept = {"accept": "text/event-stream"}
        live = asyncio.create_task(scene.http.get("/api/v1/runs/k/streams/out", headers=accept))
        later = accept | {"last-event-id": "2"}
        rest_of_it = asyncio.create_task(scene.http.get("/api/v1/runs/k/streams/out?after=0", headers=later))
        await scene.post("/runs/k/cancel")  # until then they go on
        told = [re.findall(r"id: (\d+)", (await each).text) for each in (live, rest_of_it)]
        assert told == [["1", "2", "3"], ["3"]]
        assert (await live).text.endswith("event: over\ndata: {}\n\n")
        assert '"text": "one "' in (await live).text
        assert not scene.api.state.service.live._listeners
        missing = await scene.http.get("/api/v1/runs/k/streams/other", headers=accept)
        assert missing.json()["type"] == "/problems/no_such_stream"

    played(tmp_path, play)


def test_a_plan_is_changed_by_mail_once_for_each_key(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await keeping(scene)
        plan = fits(output_shapes.PlanShape, await scene.get("/runs/k/plan"))
        assert [(each["id"], each["done"]) for each in plan["items"]] == [("1", False), ("2", False)]
        ops = [{"op": "tick", "id": "1"}, {"op": "add", "text": "rest", "after": ""}]
        sent = [await scene.post("/runs/k/plan", {"ops": ops, "note": "n"}, 202, key="x") for _ in range(2)]
        assert sent[0] == sent[1]
        assert (await scene.post("/runs/k/plan", {"ops": ops[:1]}, 409, key="x"))["type"] == "/problems/key_reused"
        plan = await scene.get("/runs/k/plan")
        assert [(each["text"], each["done"]) for each in plan["items"]] == [("rest", False), ("a", True), ("b", False)]
        assert len(plan["pending"]) == 1
        await scene.post("/runs/k/plan", {"ops": [{"op": "burn", "id": "1"}]}, 400)
        acts = (await scene.get("/activity?run=k"))["items"]
        assert ("plan", "api", "n") in [(each["what"], each["via"], each["note"]) for each in acts]
        await scene.start("echo", "e", "done")
        assert (await scene.get("/runs/e/plan", 404))["type"] == "/problems/no_such_plan"

    played(tmp_path, play)


def test_a_fork_is_planned_and_made_once_for_each_key(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await keeping(scene)
        told = fits(output_shapes.ForkPlanShape, await scene.post("/runs/k/fork/plan", {"turn": 2}))
        assert (told["turn"], told["run_id"]) == (2, "k")
        body = {"turn": 2, "state": {"seen": [9]}, "note": "what if"}
        fork = fits(shapes.RunShape, await scene.post("/runs/k/fork", body, 201, key="f"))
        assert (await scene.post("/runs/k/fork", body, 200, key="f"))["id"] == fork["id"]
        other = {"turn": 1, "note": "what if"}
        assert (await scene.post("/runs/k/fork", other, 409, key="f"))["type"] == "/problems/key_reused"
        assert (await scene.get(f"/runs/{fork['id']}/state"))["state"]["json"] == '{"seen": [9]}'
        await scene.post("/runs/k/fork/plan", {"turn": 9}, 400)
        await scene.post("/runs/k/fork", {"results": {"none#1": 1}}, 400)
        acts = [each for each in (await scene.get("/activity"))["items"] if each["what"] == "fork"]
        assert [(each["target"], each["via"], each["note"]) for each in acts] == [("k", "api", "what if")]
        found = await scene.get("/runs?prefix=k_")
        assert len(found["items"]) == 1

    played(tmp_path, play)


def test_receipts_and_threads(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await keeping(scene)
        assert fits(output_shapes.Receipts, await scene.get("/runs/k/receipts"))["items"] == []
        await scene.app.thread("chat/8", str).append("x" * 70_000, by="ana")
        page = fits(output_shapes.Threads, await scene.get("/threads?limit=1&prefix=chat"))
        assert [each["id"] for each in page["items"]] == ["chat/7"]
        page = await scene.get(f"/threads?limit=1&prefix=chat&cursor={page['next']}")
        assert ([each["id"] for each in page["items"]], page["next"]) == (["chat/8"], None)
        said = fits(output_shapes.Messages, await scene.get(f"/threads/{quote('chat/7', safe='')}/messages"))
        (message,) = said["items"]
        assert (message["number"], message["author"], message["json"]) == (1, "k", '"hello"')
        long = await scene.get(f"/threads/{quote('chat/8', safe='')}/messages")
        assert (long["items"][0]["truncated"], long["items"][0]["author"]) == (True, "ana")
        assert (await scene.get("/threads/none/messages", 404))["type"] == "/problems/no_such_thread"

    played(tmp_path, play)


def test_what_runs_stored_is_kept_from_viewers_where_that_is_said(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.http.headers["authorization"] = f"Bearer {scene.tokens['ops']}"
        await keeping(scene)
        scene.http.headers["authorization"] = f"Bearer {scene.tokens['vic']}"
        for path in ("state", "diff?a=1&b=2", "artifacts/todo.md", "streams/out", "plan"):
            assert (await scene.get(f"/runs/k/{path}", 403))["type"] == "/problems/role", path
        await scene.post("/runs/k/fork/plan", {}, 403)
        (message,) = (await scene.get(f"/threads/{quote('chat/7', safe='')}/messages"))["items"]
        assert message["json"] is None
        for path in ("checkpoints", "artifacts", "streams", "receipts"):
            await scene.get(f"/runs/k/{path}")

    people = {"ops": Role.operator, "vic": Role.viewer}
    played(tmp_path, play, options={"people": people, "payloads": "operator"})
