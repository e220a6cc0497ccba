"""Acting on runs through the API: once, by whoever has the credential, and as the command does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import holdfast as hf
from holdfast.server.security.people import Role
from tests.cli.commands import Commands
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.server.agents import counting, echo, refund
from tests.server.scene import Scene, played

PEOPLE = {"otto": Role.operator, "eva": Role.operator}


class Person:
    """Somebody who acts with a key."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._http = scene.client(token=scene.tokens[name])

    async def does(self, path: str, body: Any = None, *, key: str = "") -> tuple[int, Any]:
        headers = {"idempotency-key": key} if key else {}
        answer = await self._http.post(f"/api/v1{path}", json=body or {}, headers=headers)
        return answer.status_code, answer.json()


def kind(answer: tuple[int, Any]) -> str:
    return str(answer[1].get("type", "")).removeprefix("/problems/")


# once


def test_a_start_with_a_key_is_one_run(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        otto, eva = Person(scene, "otto"), Person(scene, "eva")
        wanted = {"agent": "echo", "input": {"text": "a"}}
        first = await otto.does("/runs", wanted, key="k")
        again = await otto.does("/runs", wanted, key="k")
        assert (first[0], again[0]) == (201, 200)
        assert first[1]["id"] == again[1]["id"]
        assert kind(await otto.does("/runs", {"agent": "echo", "input": {"text": "b"}}, key="k")) == "key_reused"
        assert kind(await otto.does("/runs", {"agent": "dozing"}, key="k")) == "key_reused"
        assert (await eva.does("/runs", wanted, key="k"))[1]["id"] != first[1]["id"], "keys are a person's own"
        assert (await otto.does("/runs", {**wanted, "id": "x"}))[0] == 201
        assert (await otto.does("/runs", {**wanted, "id": "x"}))[0] == 200
        assert kind(await otto.does("/runs", {"agent": "dozing", "id": "x"})) == "conflicting_start"
        assert (await otto.does("/runs", wanted, key="k" * 201))[0] == 400
        for wrong in ("a@b", " a", "a\n", "\x1b"):
            assert kind(await otto.does("/runs", {**wanted, "id": wrong})) == "invalid_parameter"
        assert len((await scene.get("/runs"))["items"]) == 3

    played(tmp_path, play, options={"executes": False, "people": PEOPLE})


def test_a_start_is_executed_as_the_code_would_have_been_called(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("counting", "c1", "done", n=2)
        assert (await scene.app.start(counting(2), id="c1")).id == "c1", "the same start"
        await scene.start("refund", "q1", "waiting", customer="ada")
        assert (await scene.app.start(refund("ada"), id="q1")).id == "q1"
        with pytest.raises(hf.ConflictingStart):
            await scene.app.start(refund("bob"), id="q1")
        tagged = {"agent": "echo", "id": "e1", "tags": {"$set": "x"}, "input": {"text": '{"$set": [1]}'}}
        await scene.post("/runs", tagged, 201)
        assert await scene.app.get("e1", echo).result() == '{"$set": [1]}'
        await scene.post("/runs", {"agent": "echo", "id": "e2", "input": {"text": {"$set": [1]}}}, 201)
        await scene.until("e2", "blocked")

    played(tmp_path, play)


def test_each_act_with_a_key_is_done_once_whatever_happens_in_between(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        otto, eva = Person(scene, "otto"), Person(scene, "eva")
        await scene.start("dozing", "d1", "sleeping")
        assert (await otto.does("/runs/d1/pause", {"note": "n"}, key="p"))[1]["what"] == "paused"
        assert (await eva.does("/runs/d1/resume"))[1]["what"] == "resumed"
        assert (await otto.does("/runs/d1/pause", {"note": "n"}, key="p"))[1] == {
            "status": "sleeping",
            "what": "already done",
        }
        assert kind(await otto.does("/runs/d1/cancel", key="p")) == "key_reused"
        assert (await otto.does("/runs/d1/pause", key="p2"))[1]["what"] == "paused"
        assert (await otto.does("/runs/d1/resume", key="r"))[1]["what"] == "resumed"
        assert (await eva.does("/runs/d1/pause"))[1]["what"] == "paused"
        assert (await otto.does("/runs/d1/resume", key="r"))[1] == {"status": "paused", "what": "already done"}
        assert (await otto.does("/runs/d1/cancel", key="c"))[1] == {"status": "cancelled", "what": "cancelled"}
        assert (await otto.does("/runs/d1/cancel", key="c"))[1] == {"status": "cancelled", "what": "already done"}
        assert kind(await otto.does("/runs/d1/pause")) == "not_now"
        assert kind(await otto.does("/runs/d1/resume")) == "not_now"
        reopened = [note for record, _, note in await scene.notes("d1") if record == "reopened"]
        assert reopened == []

    played(tmp_path, play, options={"people": PEOPLE})


def test_a_retry_with_a_key_opens_a_run_once(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        otto = Person(scene, "otto")
        await scene.start("failing", "f1", "failed")
        assert (await otto.does("/runs/f1/retry", {"note": "again"}, key="k"))[1]["what"] == "retried"

        async def has_failed_again() -> bool:
            shown = await scene.get("/runs/f1")
            return bool(shown["status"] == "failed" and shown["epoch"] > 2)

        await eventually(has_failed_again)
        assert (await otto.does("/runs/f1/retry", {"note": "again"}, key="k"))[1]["what"] == "already done"
        assert [note["note"] for record, _, note in await scene.notes("f1") if record == "reopened"] == ["again"]
        await scene.start("dozing", "d1", "sleeping")
        assert kind(await otto.does("/runs/d1/retry")) == "not_now"

    played(tmp_path, play, options={"people": PEOPLE})


def test_signals_and_events_with_a_key_arrive_once(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        otto = Person(scene, "otto")
        await scene.start("summing", "s1", "waiting", times=2)
        send = {"name": "number", "value": 5}
        assert (await otto.does("/runs/s1/signals", send, key="k")) == (202, {"is_new": True})
        assert (await otto.does("/runs/s1/signals", send, key="k")) == (202, {"is_new": False})
        assert kind(await otto.does("/runs/s1/signals", {"name": "number", "value": 6}, key="k")) == "key_reused"
        assert kind(await otto.does("/runs/s1/signals", {"name": "number", "value": "x"})) == "does_not_fit"
        assert kind(await otto.does("/runs/s1/signals", {"name": "other"})) == "does_not_fit"
        reply = await otto.does("/runs/s1/interrupt", {"message": "how", "wait_s": 20}, key="i")
        assert (reply[1]["what"], reply[1]["reply_json"]) == ("replied", '"how: fine"')
        again = await otto.does("/runs/s1/interrupt", {"message": "how", "wait_s": 20}, key="i")
        assert again[1]["number"] == reply[1]["number"]
        assert kind(await otto.does("/runs/s1/interrupt", {"message": "other"}, key="i")) == "key_reused"
        await otto.does("/runs/s1/signals", {**send, "value": 7, "dedup": "d"})
        await scene.until("s1", "done")
        assert await scene.app.get("s1").result() == 12
        assert kind(await otto.does("/runs/s1/signals", {"name": "number", "value": 8})) == "run_finished"
        event = {"name": "order.paid", "value": {"id": 7}}
        first, again = [(await otto.does("/events", event, key="e")) for _ in range(2)]
        assert first == again
        assert first[0] == 202
        assert kind(await otto.does("/events", {**event, "value": 8}, key="e")) == "key_reused"

    played(tmp_path, play, options={"people": PEOPLE})


# questions and effects in doubt


def test_the_first_decision_counts_and_is_for_what_was_shown(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        otto, eva = Person(scene, "otto"), Person(scene, "eva")
        await scene.start("refund", "q1", "waiting", customer="ada")
        question = (await scene.get("/questions?run=q1"))["items"][0]
        path = f"/questions/{question['id']}"
        stale = await otto.does(f"{path}/answer", {"value": True, "shown": "0" * 64})
        assert kind(stale) == "question_changed"
        assert stale[1]["question"] == question
        misfit = await otto.does(f"{path}/answer", {"value": "yes", "shown": question["shown"]})
        assert (misfit[0], kind(misfit)) == (422, "does_not_fit")
        assert misfit[1]["errors"][0]["message"]
        assert (await scene.get("/runs/q1"))["status"] == "waiting"
        answer = {"value": True, "shown": question["shown"], "note": "fine"}
        told = await otto.does(f"{path}/answer", answer, key="k")
        assert (told[1]["state"], told[1]["decided_by"], told[1]["note"]) == ("answered", "otto", "fine")
        assert (await otto.does(f"{path}/answer", answer, key="k"))[0] == 200
        assert kind(await otto.does(f"{path}/answer", {**answer, "value": False}, key="k")) == "key_reused"
        assert kind(await otto.does(f"{path}/decline", {"shown": question["shown"]}, key="k")) == "key_reused"
        late = await eva.does(f"{path}/answer", answer, key="k")
        assert (late[0], kind(late), late[1]["state"], late[1]["by"]) == (409, "already_decided", "answered", "otto")
        assert late[1]["at"] == told[1]["decided_at"]
        await scene.until("q1", "done")
        assert await scene.app.get("q1").result() == "paid"
        assert (await otto.does(f"{path}/answer", answer, key="k"))[0] == 200, "also when the run has ended"
        assert (await scene.get(f"{path[:-1]}", 404))["type"] == "/problems/no_such_question", "exact ids only"

    played(tmp_path, play, options={"people": PEOPLE})


def test_declining_is_told_to_the_agent(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("refund", "q1", "waiting", customer="ada")
        question = (await scene.get("/questions"))["items"][0]
        body = {"shown": question["shown"], "note": "ask legal"}
        assert (await scene.post(f"/questions/{question['id']}/decline", body))["state"] == "declined"
        await scene.until("q1", "failed")
        assert (await scene.get("/questions?state=all"))["items"][0]["note"] == "ask legal"

    played(tmp_path, play)


def test_an_effect_in_doubt_is_settled_once_with_how_that_is_known(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        otto, eva = Person(scene, "otto"), Person(scene, "eva")
        await scene.start("doubting", "d1", "in_doubt", amount=5)
        doubt = (await scene.get("/in-doubt?run=d1"))["items"][0]
        assert json.loads(doubt["args_json"]) == [5] or json.loads(doubt["args_json"]) == {"amount": 5}
        path = f"/runs/d1/in-doubt/{quote(doubt['key'], safe='')}"
        said = {"verdict": "happened", "value": "p-17", "attempt": doubt["attempt"], "note": "seen at the bank"}
        assert kind(await otto.does(path, {**said, "note": ""})) == "invalid_parameter"
        assert kind(await otto.does(path, {key: said[key] for key in said if key != "value"})) == "invalid_parameter"
        assert kind(await otto.does(path, {**said, "attempt": 7})) == "already_settled"
        assert kind(await otto.does("/runs/d1/in-doubt/other%231", said)) == "no_such_call"
        assert await otto.does(path, said, key="k") == (200, {"what": "settled"})
        assert await otto.does(path, said, key="k") == (200, {"what": "settled"})
        assert kind(await otto.does(path, {**said, "value": "p-18"}, key="k")) == "key_reused"
        assert kind(await eva.does(path, said)) == "already_settled"
        await scene.until("d1", "done")
        assert await scene.app.get("d1").result() == "p-17"
        call = await scene.get(f"/runs/d1/calls/{quote(doubt['key'], safe='')}")
        assert call["settlements"][-1]["given"]["actor"] == "otto"
        assert call["settlements"][-1]["given"]["note"] == "seen at the bank"

    played(tmp_path, play, options={"people": PEOPLE})


# who did it


def test_every_act_on_a_run_says_who_and_why(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        otto = Person(scene, "otto")
        await scene.start("dozing", "d1", "sleeping")
        evil = "why \x1b[2J\r\nfake line"
        for act in ("pause", "resume", "cancel", "retry"):
            status, told = await otto.does(f"/runs/d1/{act}", {"note": evil})
            assert status == 200, told
        found = await scene.notes("d1")
        acted = [note for _, name, note in found if name in ("paused", "cancel")]
        assert [(note["by"], note["note"]) for note in acted] == [("otto", evil)] * 3
        assert [(name, note["note"]) for record, name, note in found if record == "reopened"] == [("otto", evil)]
        told = (await scene.get("/activity?run=d1"))["items"]
        assert [each["what"] for each in told] == ["retry", "cancel", "resume", "pause", "start"]
        assert {(each["by"], each["via"], each["note"]) for each in told[:4]} == {("otto", "api", evil)}
        assert [each["what"] for each in (await scene.get("/activity?by=otto&limit=2"))["items"]] == ["retry", "cancel"]

    played(tmp_path, play, options={"people": PEOPLE})


def test_acts_on_what_starts_runs_are_kept_with_who_and_why(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.app.schedule("nightly", echo("x"), cron="0 2 * * *")
        await scene.app.on("paid", echo, name="ship")
        for path in ("schedules/nightly/pause", "schedules/nightly/resume", "triggers/ship/pause", "queues/mail/pause"):
            await scene.post(f"/{path}", {"note": "why"})
        await scene.post("/schedules/nightly/run", {"note": "why"}, 201)
        await scene.post("/schedules/nightly/run", {"note": "why"}, 201, key="k")
        await scene.post("/schedules/nightly/run", {"note": "why"}, 200, key="k")
        await scene.post("/events", {"name": "paid", "value": "x", "note": "why"}, 202)
        await scene.post("/schedules/nightly/pause", {"note": "why"})
        await scene.post("/schedules/nightly/pause", {"note": "again: nothing is changed"})
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = await scene.get(f"/activity?limit=2{cursor}")
            found += page["items"]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        acts = [(each["what"], each["target"]) for each in reversed(found) if each["via"] == "api"]
        assert acts == [
            ("schedule pause", "nightly"),
            ("schedule resume", "nightly"),
            ("trigger pause", "ship"),
            ("queue pause", "mail"),
            ("schedule run", "nightly"),
            ("schedule run", "nightly"),
            ("emit", "paid"),
            ("schedule pause", "nightly"),
        ]
        assert {each["note"] for each in found if each["via"] == "api"} == {"why"}

    played(tmp_path, play)


@pytest.mark.sqlite_alone("the store is the scene's own")
def test_acts_leave_the_same_records_as_the_command(tmp_path: Path, forkserver: ForkServer) -> None:
    command = Commands(tmp_path, forkserver)

    async def play(scene: Scene) -> None:
        otto = Person(scene, "otto")
        for run in ("by-command", "by-http"):
            await scene.start("dozing", run, "sleeping")
        for act in ("pause", "resume", "cancel"):
            done = command(act, "by-command", "--note", "n", "--by", "otto", "--db", scene.url)
            assert done.code == 0, done.err
            assert (await otto.does(f"/runs/by-http/{act}", {"note": "n"}))[0] == 200
        mine, theirs = await scene.notes("by-http"), await scene.notes("by-command")
        assert {each[2].pop("via") for each in mine} == {"api"}
        assert {each[2].pop("via") for each in theirs} == {"cli"}
        assert mine == theirs
        assert len(mine) == 3
        await scene.start("refund", "q-command", "waiting", customer="ada")
        await scene.start("refund", "q-http", "waiting", customer="ada")
        assert command("answer", "q-command", "--yes", "--note", "n", "--by", "otto", "--db", scene.url).code == 0
        question = (await scene.get("/questions?run=q-http"))["items"][0]
        await otto.does(f"/questions/{question['id']}/answer", {"value": True, "shown": question["shown"], "note": "n"})
        bodies = []
        for run in ("q-command", "q-http"):
            await scene.until(run, "done")
            mail = await scene.app._store.mail(scene.app.get(run).id, after=0)
            bodies.append([(each.kind, each.key, json.loads(each.body)) for each in mail])
        assert [body[0][2].pop("via") for body in bodies] == ["cli", "api"]
        assert bodies[0] == bodies[1]
        done = command("activity", "--by", "otto", "--json", "--db", scene.url)
        acts = [(each["what"], each["via"]) for each in json.loads(done.out)["items"]]
        assert acts[:2] == [("answer", "api"), ("answer", "cli")]
        assert command("queues", "pause", "mail", "--note", "n", "--by", "otto", "--db", scene.url).code == 0
        assert command("activity", "--db", scene.url).out.split("\t")[1:5] == ["otto", "cli", "queue pause", "mail"]

    played(tmp_path, play, options={"people": PEOPLE})


# many, and what starts runs


def test_many_runs_are_acted_on_and_each_is_told_of(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for number in range(3):
            await scene.start("dozing", f"d{number}", "sleeping")
        await scene.start("echo", "e1", "done")
        told = await scene.post("/runs/bulk", {"act": "pause", "ids": ["d0", "e1", "none", "d0"]})
        assert {each["id"]: each["what"] for each in told["items"]} == {
            "d0": "paused",
            "e1": "not_now",
            "none": "no_such_run",
        }
        wanted = {"act": "cancel", "filter": {"agent": "dozing"}, "expected": 2}
        changed = await scene.post("/runs/bulk", wanted, 409)
        assert (changed["type"], changed["found"]) == ("/problems/count_changed", 3)
        told = await scene.post("/runs/bulk", {**wanted, "expected": 3})
        assert [each["what"] for each in told["items"]] == ["cancelled"] * 3
        wrongs: list[dict[str, Any]] = [{}, {"ids": [], "filter": {}}, {"filter": {"agent": "x"}}]
        for wrong in [*wrongs, {"filter": {"color": "x"}, "expected": 0}]:
            await scene.post("/runs/bulk", {"act": "pause", **wrong}, 400)

    played(tmp_path, play)


def test_schedules_triggers_and_queues_are_listed_and_changed(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.app.schedule("nightly", echo(), cron="0 2 * * *")
        await scene.app.on("order.paid", echo, name="orders")
        await scene.app.queue("mail", concurrency=4)
        schedule = (await scene.get("/schedules"))["items"][0]
        assert (schedule["name"], len(schedule["next_fires"])) == ("nightly", 5)
        assert (await scene.get("/triggers"))["items"][0]["name"] == "orders"
        for kind, name in (("schedules", "nightly"), ("triggers", "orders"), ("queues", "mail")):
            assert (await scene.post(f"/{kind}/{name}/pause", {"note": "n"}))["what"] == "paused"
            assert (await scene.get(f"/{kind}"))["items"][0]["paused"] is True
            assert (await scene.post(f"/{kind}/{name}/resume"))["what"] == "resumed"
            assert (await scene.get(f"/{kind}"))["items"][0]["paused"] is False
        first = await scene.post("/schedules/nightly/run", {}, 201, key="k")
        again = await scene.post("/schedules/nightly/run", {}, 200, key="k")
        assert first["id"] == again["id"]
        assert (await scene.post("/schedules/nightly/run", {}, 201))["id"] != first["id"]
        past = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T12:00:00Z"}
        assert len((await scene.post("/schedules/nightly/backfill", past))["runs"]) == 2
        assert (await scene.post("/schedules/nightly/backfill", past))["runs"] == []
        await scene.post("/events", {"name": "order.paid", "value": "hi"}, 202)
        assert (await scene.get("/triggers/orders/log"))["recent"]
        limits = await scene.http.put("/api/v1/queues/mail", json={"per_key": 1, "rate": {"starts": 5, "seconds": 60}})
        assert limits.json() == {"what": "set"}
        queue = (await scene.get("/queues"))["items"][0]
        assert (queue["concurrency"], queue["per_key"], queue["rate"]) == (None, 1, [5, 60.0])
        for path in ("/schedules/nightly", "/triggers/orders"):
            assert (await scene.http.delete(f"/api/v1{path}")).json() == {"what": "removed"}
            assert (await scene.http.delete(f"/api/v1{path}")).status_code == 404
        assert (await scene.post("/schedules/none/pause", {}, 404))["type"] == "/problems/no_such_schedule"
        assert (await scene.get("/agents"))["items"][0]["input_schema"] is not None

    played(tmp_path, play)


def test_it_is_the_same_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    async def play(scene: Scene) -> None:
        otto = Person(scene, "otto")
        for _ in range(2):
            assert (
                await otto.does("/runs", {"agent": "refund", "id": "q/1", "input": {"customer": "a\x00b"}}, key="k")
            )[0] < 300
        await scene.until("q%2F1", "waiting")
        question = (await scene.get("/questions"))["items"][0]
        answer = {"value": True, "shown": question["shown"]}
        for _ in range(2):
            assert (await otto.does(f"/questions/{question['id']}/answer", answer, key="k"))[0] == 200
        await scene.until("q%2F1", "done")
        await scene.start("doubting", "d1", "in_doubt", amount=5)
        assert len((await scene.get("/in-doubt"))["items"]) == 1
        assert {each["id"] for each in (await scene.get("/runs"))["items"]} == {"q/1", "d1"}
        assert (await scene.get("/store"))["kind"] == "postgresql"
        assert "postgres:" not in (await scene.http.get("/api/v1/overview")).text
        for nasty in ("\ufffd", "' OR 1=1 --", "\x7f"):
            assert (await scene.http.get("/api/v1/runs", params={"agent": nasty})).json()["items"] == []

    played(tmp_path, play, options={"people": PEOPLE, "url": postgres_url})
