"""Looking at runs through the API."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import pytest
from pydantic import BaseModel

from holdfast.server import shapes
from holdfast.server.pages import Position, cursor_of, position_in
from holdfast.server.problems import Problem
from holdfast.server.security.people import Role
from tests.server.scene import Scene, played

EVIL = "<script>alert(1)</script>\x1b]8;;http://evil\x07\u202e"


def test_pages_are_stable_and_complete(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for number in range(7):
            await scene.post("/runs", {"agent": "echo", "id": f"r{number}"}, 201)
        page = await scene.get("/runs?limit=3&agent=echo")
        ids = [each["id"] for each in page["items"]]
        await scene.post("/runs", {"agent": "echo", "id": "newer"}, 201)
        while page["next"]:
            page = await scene.get(f"/runs?limit=3&agent=echo&cursor={page['next']}")
            ids += [each["id"] for each in page["items"]]
        assert ids == [f"r{number}" for number in reversed(range(7))]

    played(tmp_path, play, options={"executes": False})


def test_a_cursor_goes_on_with_its_own_list_only(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for number in range(3):
            await scene.post("/runs", {"agent": "echo", "id": f"r{number}"}, 201)
        following = (await scene.get("/runs?limit=1&agent=echo"))["next"]
        for other in ("agent=other", "status=queued&agent=echo", "", "agent=echo&prefix=r"):
            found = await scene.get(f"/runs?{other}&cursor={following}", 400)
            assert found["type"] == "/problems/cursor_does_not_fit"
        for forged in ("c_", "x", following[:-3], following + "A", "c_" + "A" * 400, "c_W10", "c_bnVsbA"):
            found = await scene.get(f"/runs?agent=echo&cursor={forged}", 400)
            assert found["type"] == "/problems/cursor_does_not_fit", forged
        assert (await scene.get(f"/questions?cursor={following}", 400))["type"] == "/problems/cursor_does_not_fit"

    played(tmp_path, play, options={"executes": False})


def test_a_cursor_is_read_as_it_was_written() -> None:
    position = Position(1_794_928_035_111_614, "a/b é 'x'")
    assert position_in(cursor_of(position, {"agent": "x", "status": []}), {"agent": "x", "queue": None}) == position
    with pytest.raises(Problem):
        position_in(cursor_of(position, {"agent": "x"}), {"agent": "y"})


def test_filters_find_what_they_name(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.post(
            "/runs", {"agent": "echo", "id": "e1", "thread_id": "t1", "queue": "q1", "tags": {"a": "b"}}, 201
        )
        await scene.post("/runs", {"agent": "dozing", "id": "d1", "priority": 3}, 201)

        async def ids(query: str) -> list[str]:
            return [each["id"] for each in (await scene.get(f"/runs?{query}"))["items"]]

        for query in (
            "agent=echo",
            "thread=t1",
            "queue=q1",
            "prefix=e",
            "tag=a=b",
            "since=2026-01-01T00:00:00Z&agent=echo",
        ):
            assert await ids(query) == ["e1"], query
        assert await ids("status=queued&status=failed") == ["d1", "e1"]
        assert await ids("status=failed") == []
        assert await ids("cut_off=true") == []
        assert await ids("since=2099-01-01T00:00:00%2B01:00") == []
        assert (await scene.get("/runs?since=2026-01-01", 400))["type"] == "/problems/invalid_parameter"
        assert (await scene.get("/runs?agent=a&agent=b", 400))["type"] == "/problems/invalid_parameter"
        assert (await scene.get("/runs?limit=201", 400))["type"] == "/problems/invalid_parameter"
        assert (await scene.get("/runs/counts?agent=echo"))["status"] == {"queued": 1}
        assert (await scene.get("/runs?agent=dozing"))["items"][0]["priority"] == 3

    played(tmp_path, play, options={"executes": False})


def fits(shape: type[BaseModel], found: Any) -> None:
    shape.model_validate(found)


def test_answers_are_as_the_document_says(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("counting", "c1", "done", n=3)
        await scene.start("refund", "q1", "waiting", customer="ada")
        await scene.start("doubting", "d1", "in_doubt", amount=5)
        await scene.start("failing", "f1", "failed")
        for run in ("c1", "q1", "d1", "f1"):
            fits(shapes.Detail, await scene.get(f"/runs/{run}"))
            fits(shapes.Columns, await scene.get(f"/runs/{run}/calls"))
            fits(shapes.Records, await scene.get(f"/runs/{run}/records"))
            fits(shapes.Story, await scene.get(f"/runs/{run}/story"))
            fits(shapes.Checked, await scene.post(f"/runs/{run}/verify"))
        told = (await scene.get("/runs/c1/story"))["lines"]
        assert told[0].startswith("counting (c1) started on ")
        assert told[1].startswith("3 calls succeeded in "), told
        assert (await scene.get("/runs/q1/story"))["lines"][-1].startswith("Now it is waiting (asks: "), told
        fits(shapes.CallShape, await scene.get(f"/runs/d1/calls/{quote('pay#1', safe='')}"))
        fits(shapes.RunPage, await scene.get("/runs"))
        fits(shapes.Counts, await scene.get("/runs/counts"))
        fits(shapes.Agents, await scene.get("/agents"))
        fits(shapes.Overview, await scene.get("/overview"))
        fits(shapes.QuestionPage, await scene.get("/questions"))
        fits(shapes.Doubts, await scene.get("/in-doubt"))
        fits(shapes.StoreShape, await scene.get("/store"))
        fits(shapes.Listed, await scene.get("/workers"))
        needs = {each["kind"] for each in (await scene.get("/overview"))["needs"]}
        assert needs == {"question", "in_doubt"}
        assert (await scene.get("/runs/q1"))["now"] == "asks: Pay 40 back to ada?"
        assert str(tmp_path) not in json.dumps([await scene.get("/store"), await scene.get("/overview")])

    played(tmp_path, play)


def test_calls_come_in_columns_and_later_only_what_changed(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("counting", "c1", "done", n=5)
        found = await scene.get("/runs/c1/calls")
        calls = found["calls"]
        assert {len(column) for column in calls.values()} == {5}
        assert found["names"] == ["double"]
        assert calls["n"] == [1, 2, 3, 4, 5]
        assert [found["statuses"][each] for each in calls["status"]] == ["done"] * 5
        assert [found["kinds"][each] for each in calls["kind"]] == ["step"] * 5
        assert calls["tokens"] == [5] * 5
        assert calls["cost"] == [0.5] * 5
        assert (await scene.get(f"/runs/c1/calls?after={found['head']}"))["calls"]["seq"] == []
        some = await scene.get(f"/runs/c1/calls?after={calls['seq'][3] - 1}")
        assert some["calls"]["n"] == [4, 5]
        await scene.start("doubting", "d1", "in_doubt", amount=5)
        doubt = await scene.get("/runs/d1/calls")
        assert [doubt["statuses"][each] for each in doubt["calls"]["status"]] == ["in doubt"]
        assert doubt["extras"][str(doubt["calls"]["seq"][0])]["idempotency_key"].startswith("hf-")
        await scene.start("keeper", "k1", "waiting")
        kept = await scene.get("/runs/k1/calls")
        assert "hf:turn" not in kept["names"], "the head of a turn is no call: it would be an open one for ever"
        assert [kept["statuses"][each] for each in kept["calls"]["status"]].count("cut off") == 0

    played(tmp_path, play)


def test_what_the_client_has_is_not_sent_again(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("refund", "q1", "waiting", customer="ada")
        tag = ""
        for path in ("/runs/q1", "/runs/q1/calls", "/runs/q1/records", "/runs/q1/story"):
            tag = (await scene.http.get(f"/api/v1{path}")).headers["etag"]
            again = await scene.http.get(f"/api/v1{path}", headers={"if-none-match": tag})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        await scene.post("/runs/q1/pause")
        assert (await scene.http.get("/api/v1/runs/q1", headers={"if-none-match": tag})).status_code == 200

    played(tmp_path, play)


def test_the_journal_comes_in_pages_or_as_lines(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("counting", "c1", "done", n=5)
        page = await scene.get("/runs/c1/records?limit=4")
        found = page["items"]
        while page["next"] is not None:
            page = await scene.get(f"/runs/c1/records?after={page['next']}&limit=4")
            found += page["items"]
        assert [each["seq"] for each in found] == list(range(1, len(found) + 1))
        lines = await scene.http.get("/api/v1/runs/c1/records", headers={"accept": "application/x-ndjson"})
        assert lines.headers["content-type"] == "application/x-ndjson"
        assert [json.loads(line) for line in lines.text.splitlines()] == found

    played(tmp_path, play)


def test_a_stored_value_is_a_download_that_no_browser_shows(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        text = EVIL + "x" * 100_000
        run = "..%2F..%2Fetc%2F%22%3Bx"
        await scene.post("/runs", {"agent": "echo", "id": '../../etc/";x', "input": {"text": text}}, 201)
        await scene.until(run, "done")
        shown = await scene.get(f"/runs/{run}")
        assert shown["input"]["truncated"] is True
        assert len(shown["input"]["json"]) == 64_000
        seq, part = shown["input"]["seq"], shown["input"]["part"]
        answer = await scene.http.get(f"/api/v1/runs/{run}/payload?seq={seq}&part={part}")
        assert json.loads(answer.text) == {"text": text}
        headers = answer.headers
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"] == f'attachment; filename="_.._etc_x-{seq}-args.json"'
        assert headers["content-security-policy"].startswith("sandbox;")
        assert headers["x-content-type-options"] == "nosniff"
        assert (await scene.get(f"/runs/{run}/payload?seq=999", 404))["type"] == "/problems/no_such_record"
        await scene.get(f"/runs/{run}/payload?seq=1&part=../x", 400)

    played(tmp_path, play)


def test_what_agents_say_is_never_markup(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("refund", "q1", "waiting", customer=EVIL)
        for path in (
            "/runs",
            "/runs/q1",
            "/questions",
            "/overview",
            "/runs/q1/story",
            "/runs/q1/records",
            "/runs/q1/calls",
        ):
            answer = await scene.http.get(f"/api/v1{path}")
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.text.isascii()
            assert "\x1b" not in answer.text

    played(tmp_path, play)


def test_values_may_be_withheld_from_viewers(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("echo", "e1", "done", text="s3cret")
        viewer, operator = (scene.client(token=scene.tokens[each]) for each in ("vera", "otto"))
        for path in ("/runs/e1", "/runs/e1/records"):
            assert "s3cret" in (await operator.get(f"/api/v1{path}")).text
            assert "s3cret" not in (await viewer.get(f"/api/v1{path}")).text
        lines = await viewer.get("/api/v1/runs/e1/records", headers={"accept": "application/x-ndjson"})
        assert "s3cret" not in lines.text
        assert (await viewer.get("/api/v1/runs/e1/payload?seq=1&part=args")).status_code == 403
        assert (await operator.get("/api/v1/runs/e1/payload?seq=1&part=args")).status_code == 200

    people = {"vera": Role.viewer, "otto": Role.operator}
    played(tmp_path, play, options={"people": people, "payloads": "operator"})


@pytest.mark.corrupts
def test_damage_is_no_error_of_who_looks(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("counting", "c1", "done", n=2)
        await scene.start("echo", "e1", "done")

    played(tmp_path, play)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("UPDATE records SET payload = '\"forged\"' WHERE run_id = 'c1' AND kind = 'done'")
    connection.execute("UPDATE runs SET summary = 'nonsense' WHERE id = 'e1'")
    connection.close()

    async def look(scene: Scene) -> None:
        assert (await scene.post("/runs/c1/verify"))["is_ok"] is False
        for path in ("", "/calls", "/records", "/story"):
            await scene.get(f"/runs/c1{path}")
        shown = await scene.get("/runs/e1")
        assert (shown["status"], shown["is_sound"]) == ("quarantined", False)
        assert {each["id"] for each in (await scene.get("/runs"))["items"]} == {"c1", "e1"}
        for act in ("pause", "resume", "retry", "cancel"):
            answer = await scene.http.post(f"/api/v1/runs/e1/{act}", json={})
            assert answer.status_code == 409, (act, answer.text)

    played(tmp_path, look, options={"executes": False})


def test_a_run_that_was_pruned_is_gone_and_known(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("echo", "e1", "done")
        await scene.app.prune(older_than=timedelta(0))
        for path in ("", "/calls", "/records", "/story", "/payload?seq=1"):
            found = await scene.get(f"/runs/e1{path}", 410)
            assert found["type"] == "/problems/pruned"
            assert (found["was"], found["run"]["agent"]) == ("done", "echo")
        for act in ("pause", "resume", "retry", "cancel"):
            await scene.post(f"/runs/e1/{act}", {}, 410)
        assert (await scene.get("/runs/e2", 404))["type"] == "/problems/no_such_run"
        assert (await scene.get("/runs/e", 404))["type"] == "/problems/no_such_run", "exact ids only"
        assert (await scene.get("/runs/@last", 404))["type"] == "/problems/no_such_run"

    played(tmp_path, play)


def test_runs_are_counted_and_binned_by_filters(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for number in range(3):
            await scene.start("echo", f"e-{number}", "done", text=str(number))
        await scene.start("refund", "a-1", "waiting", customer="ada")
        assert (await scene.get("/runs/counts"))["status"] == {"done": 3, "waiting": 1}
        assert (await scene.get("/runs/counts?agent=refund"))["status"] == {"waiting": 1}
        assert (await scene.get("/runs/counts?agent=nobody"))["status"] == {}
        found = await scene.get("/runs/histogram?bins=10")
        assert len(found["bins"]) == 10
        assert found["is_exact"] is True
        total = {name: sum(each[name] for each in found["bins"]) for name in found["bins"][0]}
        assert total == {"done": 3, "failed": 0, "cancelled": 0, "unfinished": 1}
        assert found["bins"][-1]["done"] == 3, "the last bin ends now"
        none = await scene.get("/runs/histogram?until=2020-01-01T00:00:00Z")
        assert sum(sum(each.values()) for each in none["bins"]) == 0
        assert await scene.get("/runs?until=2020-01-01T00:00:00Z") == {"items": [], "next": None}
        await scene.get("/runs/histogram?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", 400)
        assert [each["name"] for each in (await scene.get("/agents"))["items"]] >= ["echo"]

    played(tmp_path, play)


def test_questions_come_in_pages_of_any_length(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for number in range(5):
            await scene.start("refund", f"a-{number}", "waiting", customer="ada")
        for state, ordered in (("open", False), ("all", True)):
            seen: list[str] = []
            cursor = ""
            while True:
                page = await scene.get(f"/questions?state={state}&limit=2{cursor}")
                seen += [each["run_id"] for each in page["items"]]
                if page["next"] is None:
                    break
                cursor = f"&cursor={page['next']}"
            assert sorted(seen) == [f"a-{number}" for number in range(5)]
            asked = [(await scene.get(f"/questions?run={each}"))["items"][0]["asked_at"] for each in seen]
            assert asked == sorted(asked, reverse=ordered)

    played(tmp_path, play)
