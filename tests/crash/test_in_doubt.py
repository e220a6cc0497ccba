"""An effect whose end nobody saw: settled by its verification, its rule or a person, and never repeated blindly."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.model import Kind, Record, RunId, RunRow
from holdfast.store import open_store
from holdfast.testing import Ledger, assert_survives, check_history, resolve
from holdfast.testing.processes import Lane, Order
from tests.crash import doubtful
from tests.crash.agents import World

POINTS = ("effect.before_intent", "effect.after_intent", "effect.after_body", "effect.after_outcome")


class Scene:
    """A store and an outside world, and processes that are killed there."""

    def __init__(self, folder: Path, lane: Lane) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lane = lane
        self.url = str(folder / "store.db")
        self.world = World(folder)
        self.ledger = Ledger(folder / "ledger.jsonl")

    def run(self, call: hf.Call[Any], *, kill: str = "", **env: str) -> int:
        """Start the run or go on with it, in a process of its own; its exit code."""
        fault = f"{kill}:kill@1" if kill else ""
        env |= {"HOLDFAST_LEDGER": str(self.ledger.path), "HOLDFAST_TEST_FOLDER": str(self.folder)}
        env["HOLDFAST_FAULT"] = fault
        log = self.folder / "log.txt"
        order = Order(doubtful.__file__, call.agent.name, "r", self.url, call.input.text, env, log)
        code = self.lane.run(order, 60)
        assert code in (0, -9), log.read_text()
        return code

    def load(self, run_id: str = "r") -> tuple[RunRow, list[Record]]:
        async def load() -> tuple[RunRow, list[Record]]:
            store = open_store(self.url, settings=Settings())
            await store.open(read_only=True)
            try:
                loaded = await store.load(RunId(run_id))
                assert loaded is not None
                return loaded
            finally:
                await store.close()

        return asyncio.run(load())

    @property
    def status(self) -> str:
        return self.load()[0].status

    @property
    def result(self) -> Any:
        return json.loads(self.load()[1][-1].payload or "null")

    def settled(self) -> list[tuple[str, str]]:
        notes = [json.loads(r.payload or "{}") for r in self.load()[1] if r.kind == Kind.settled]
        return [(note["verdict"], note["by"]) for note in notes]

    def acted(self) -> int:
        return len(self.world.values("acted"))

    def violations(self) -> list[str]:
        return check_history(self.url, self.ledger)


@pytest.fixture(scope="module")
def lanes() -> Iterator[list[Lane]]:
    with Lane() as first, Lane() as second:
        yield [first, second]


@pytest.fixture
def scene(lanes: list[Lane], tmp_path: Path) -> Scene:
    return Scene(tmp_path, lanes[0])


def cancel(url: str) -> None:
    async def cancelled() -> None:
        async with hf.connect(url) as app:
            await app.get("r").cancel(by="ada", timeout=0)

    asyncio.run(cancelled())


@pytest.mark.parametrize("kill", ["", "settle.after_record", "effect.after_intent", "effect.after_body"])
def test_what_its_rule_takes_back_is_taken_back_though_the_run_is_cancelled(scene: Scene, kill: str) -> None:
    """Killed again where it is taken back, too."""
    assert scene.run(doubtful.matrix("undo", "none"), kill="effect.after_body") == -9
    cancel(scene.url)
    if kill:
        assert scene.run(doubtful.matrix("undo", "none"), kill=kill) == -9
    assert scene.run(doubtful.matrix("undo", "none")) == 0
    assert scene.status == "cancelled"
    assert (scene.acted(), set(scene.world.values("took back"))) == (1, {1})
    assert scene.violations() == []


# four points x four rules x five verifications


def expected(point: str, rule: str, verdict: str) -> tuple[str, str | None, int, int, list[tuple[str, str]]]:
    """(status, result, acts, undos, settlements), written down from the promise and not from the code."""
    if point == "effect.before_intent":
        return "done", "acted", 1, 0, []
    before = 0 if point == "effect.after_intent" else 1
    if verdict == "landed":
        return "done", "verified", before, 0, [("landed", "verify")]
    if verdict == "not_landed":
        return "done", "acted", before + 1, 0, [("not_landed", "verify")]
    match rule:
        case "ask":
            return "in_doubt", None, before, 0, []
        case "retry":
            return "done", "acted", before + 1, 0, [("retry", "on_doubt")]
        case "undo":
            return "done", "undone", before, 1, [("undo", "on_doubt")]
        case _:
            return "done", "in doubt", before, 0, [("fail", "on_doubt")]


CASES = [(p, r, v) for p in POINTS for r in doubtful.RULES for v in doubtful.VERDICTS]
#: Every pair of a point, a rule and a verification.
PAIRS = [(p, r, doubtful.VERDICTS[(i + j) % 5]) for i, p in enumerate(POINTS) for j, r in enumerate(doubtful.RULES)]
PAIRS += [(POINTS[(i + j) % 4], r, v) for i, r in enumerate(doubtful.RULES) for j, v in enumerate(doubtful.VERDICTS)]


@pytest.mark.parametrize("cases", [list(dict.fromkeys(PAIRS)), pytest.param(CASES, marks=pytest.mark.prove)], ids=len)
def test_points_under_rules_and_verifications(
    lanes: list[Lane], tmp_path: Path, cases: list[tuple[str, str, str]]
) -> None:
    free = list(lanes)

    def one(case: tuple[str, str, str]) -> str | None:
        point, rule, verdict = case
        lane = free.pop()
        try:
            scene = Scene(tmp_path / "-".join(case), lane)
            call = doubtful.matrix(rule, verdict)
            assert scene.run(call, kill=point) == -9
            assert scene.run(call) == 0
        finally:
            free.append(lane)
        result = scene.result if scene.status == "done" else None
        took_back = len(scene.world.values("took back"))
        found = (scene.status, result, scene.acted(), took_back, scene.settled())
        # A verification that says no to what happened is believed; the checker must notice.
        lied = verdict == "not_landed" and point in ("effect.after_body", "effect.after_outcome")
        violations = scene.violations()
        assert len(violations) == lied, f"{case}: {violations}"
        return None if found == expected(*case) else f"{case}: {found}, expected {expected(*case)}"

    with ThreadPoolExecutor(len(lanes)) as threads:
        wrong = [each for each in threads.map(one, cases) if each]
    assert not wrong, "\n".join(wrong)


def test_not_landed_counts_only_after_the_settle_time(scene: Scene) -> None:
    call = doubtful.patient(1)
    assert scene.run(call, kill="effect.after_intent") == -9
    began = time.monotonic()
    assert scene.run(call) == 0
    assert time.monotonic() - began >= 0.7
    _, records = scene.load()
    claim = next(r for r in records if r.kind == Kind.claimed and r.epoch == 2)
    again = [r for r in records if r.kind == Kind.intent][1]
    assert again.at - claim.at >= 700_000
    assert scene.acted() == 1
    assert scene.settled() == [("not_landed", "verify")]


def test_landed_counts_at_once(scene: Scene) -> None:
    call = doubtful.very_patient(1)
    assert scene.run(call, kill="effect.after_body") == -9
    assert scene.run(call) == 0
    assert (scene.status, scene.result) == ("done", "verified")  # the settle time is an hour
    assert scene.acted() == 1


# an exception and a timeout are no proof


@hf.effect(retries=3, settle=0)
async def explodes(n: int, calls: str) -> str:
    with Path(calls).open("a") as file:
        file.write("called\n")
    raise RuntimeError("connection lost")


@hf.effect(timeout=0.05, retries=3, on_doubt="fail")
async def hangs(n: int, calls: str) -> str:
    with Path(calls).open("a") as file:
        file.write("called\n")
    await asyncio.sleep(30)
    return "never"


@hf.effect(timeout=0.05, retries=3, on_doubt="fail")
def lives_on(n: int, calls: str) -> str:
    with Path(calls).open("a") as file:
        file.write("called\n")
    time.sleep(0.3)
    return "late, but true"


@hf.effect(retries=2, settle=0)
async def explodes_verified(n: int, calls: str) -> str:
    with Path(calls).open("a") as file:
        file.write("called\n")
    raise RuntimeError("connection lost")


@explodes_verified.verify
async def not_there(n: int, calls: str) -> hf.Verdict[str]:
    return hf.not_landed()


@hf.agent
async def calls_one(name: str, calls: str) -> str:
    effect = {"explodes": explodes, "hangs": hangs, "lives_on": lives_on, "verified": explodes_verified}[name]
    return await effect(1, calls)


def times(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_an_undeclared_exception_leaves_the_effect_in_doubt_and_is_not_retried(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    with pytest.raises(hf.NeedsHuman):
        hf.run(calls_one("explodes", str(calls)), id="r", url=str(tmp_path / "s.db"))
    assert times(calls) == 1


def test_a_timeout_leaves_the_effect_in_doubt_and_is_not_retried(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    with pytest.raises(hf.RunFailed) as caught:
        hf.run(calls_one("hangs", str(calls)), id="r", url=str(tmp_path / "s.db"))
    assert isinstance(caught.value.__cause__, hf.EffectInDoubt)
    assert times(calls) == 1


def test_the_thread_of_an_effect_that_timed_out_has_the_last_word(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    said = hf.run(calls_one("lives_on", str(calls)), id="r", url=str(tmp_path / "s.db"))
    assert said == "late, but true"
    assert times(calls) == 1


def test_an_effect_proven_not_to_have_happened_is_tried_as_often_as_its_retries_say(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    with pytest.raises(hf.RunFailed) as caught:
        hf.run(calls_one("verified", str(calls)), id="r", url=str(tmp_path / "s.db"))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert times(calls) == 3


# a server that acts and never answers


class Silent(http.server.BaseHTTPRequestHandler):
    orders = 0
    ordered, closing = threading.Event(), threading.Event()

    def do_POST(self) -> None:
        type(self).orders += 1
        self.ordered.set()
        self.closing.wait()

    def do_GET(self) -> None:
        self.ordered.wait(60)  # what was sent first is seen first
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(self.orders).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Silent]]:
    Silent.orders, Silent.ordered, Silent.closing = 0, threading.Event(), threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("SERVER", f"http://127.0.0.1:{server.server_port}")
        yield Silent
        Silent.closing.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_a_post_that_is_never_answered_is_made_once(scene: Scene, silent: type[Silent], kind: str) -> None:
    call = doubtful.orders(kind)
    assert scene.run(call, SERVER=os.environ["SERVER"]) == 0
    assert silent.ordered.wait(60)
    assert (scene.status, silent.orders) == ("in_doubt", 1)
    assert scene.run(call, SERVER=os.environ["SERVER"]) == 0
    assert (scene.status, silent.orders) == ("in_doubt", 1)


def test_a_post_that_is_never_answered_can_be_verified(scene: Scene, silent: type[Silent]) -> None:
    assert scene.run(doubtful.orders("verified"), SERVER=os.environ["SERVER"]) == 0
    assert (scene.result, silent.orders) == ("verified", 1)


# the result cannot be stored after the effect happened


def test_an_effect_whose_result_cannot_be_stored_is_kept_and_never_repeated() -> None:
    def check(life: Any) -> None:
        assert life.result == ["happened", "posted-1"]
        assert World(life.folder).values("acted") == [1]

    points = ["effect.after_intent@2", "effect.after_body@2", "effect.after_outcome@2", "finish.*"]
    survival = assert_survives(doubtful.forgetful(1), points=points, check=check)
    assert survival.kills >= 5


def test_a_result_that_cannot_be_stored_and_is_cut_off_as_well_is_in_doubt(scene: Scene) -> None:
    call = doubtful.forgetful(1)
    assert scene.run(call, kill="effect.after_body") == -9
    assert scene.run(call) == 0
    assert (scene.status, scene.acted()) == ("in_doubt", 1)


# a person decides, in another process


def parked(scene: Scene, *, kill: str = "effect.after_body") -> hf.Call[str]:
    call = doubtful.awaiting(1)
    assert scene.run(call, kill=kill) == -9
    assert scene.run(call) == 0
    assert scene.status == "in_doubt"
    return call


@pytest.mark.parametrize(
    ("kill", "verdict", "result", "acts"),
    [
        ("effect.after_body", lambda: hf.landed("a person saw it"), "a person saw it", 1),
        ("effect.after_intent", lambda: hf.not_landed(), "acted", 1),
        ("effect.after_body", lambda: LookupError("lost"), "told: lost", 1),
    ],
    ids=["landed", "not landed", "exception"],
)
def test_a_person_settles_it_while_the_run_is_parked(
    scene: Scene, kill: str, verdict: Callable[[], hf.Verdict[str] | Exception], result: str, acts: int
) -> None:
    call = parked(scene, kill=kill)
    assert resolve(scene.url, "r", lambda doubt: verdict()) == ["doubtful#1"]
    assert scene.run(call) == 0
    assert (scene.status, scene.result, scene.acted()) == ("done", result, acts)
    assert [by for _, by in scene.settled()] == ["person"]
    assert scene.violations() == []


def test_a_person_is_asked_again_if_the_result_they_give_does_not_fit(scene: Scene) -> None:
    call = parked(scene)
    resolve(scene.url, "r", lambda doubt: hf.landed([1, 2]))
    assert scene.run(call) == 0
    assert scene.status == "in_doubt"
    resolve(scene.url, "r", lambda doubt: hf.landed("text"))
    assert scene.run(call) == 0
    assert scene.result == "text"


def test_settling_twice_is_refused(scene: Scene) -> None:
    call = parked(scene)

    async def twice() -> None:
        async with hf.connect(scene.url) as app:
            (doubt,) = await app.get("r").in_doubt()
            await doubt.resolve(hf.landed("first"))
            with pytest.raises(hf.AlreadySettled):
                await doubt.resolve(hf.landed("second"))
            assert await app.in_doubt() == []

    asyncio.run(twice())
    assert scene.run(call) == 0
    assert scene.result == "first"

    async def too_late() -> None:
        async with hf.connect(scene.url) as app:
            doubt = hf.InDoubt(app._store, "r", "doubtful#1", "doubtful", 1, None, "", 0, "")
            with pytest.raises(hf.AlreadySettled):
                await doubt.resolve(hf.not_landed())

    asyncio.run(too_late())


def test_of_two_persons_who_settle_at_the_same_time_one_is_told_so(scene: Scene) -> None:
    call = parked(scene)

    async def both() -> list[BaseException | None]:
        async with hf.connect(scene.url) as one, hf.connect(scene.url) as other:
            doubts = [(await app.get("r").in_doubt())[0] for app in (one, other)]
            said = ["first", "second"]
            return list(
                await asyncio.gather(
                    *(d.resolve(hf.landed(s)) for d, s in zip(doubts, said, strict=True)), return_exceptions=True
                )
            )

    told = asyncio.run(both())
    assert scene.run(call) == 0
    assert sorted(type(each).__name__ for each in told) == ["AlreadySettled", "NoneType"]
    assert scene.result == ["first", "second"][told.index(None)]


def test_a_verdict_on_an_earlier_attempt_is_refused(scene: Scene) -> None:
    call = parked(scene, kill="effect.after_intent")

    async def old_news() -> None:
        async with hf.connect(scene.url) as app:
            (doubt,) = await app.get("r").in_doubt()
            assert doubt.attempt == 1
            await doubt.resolve(hf.not_landed())
            assert await asyncio.to_thread(scene.run, call, kill="effect.after_body") == -9
            with pytest.raises(hf.AlreadySettled):
                await doubt.resolve(hf.landed("said of the first attempt"))

    asyncio.run(old_news())


# what is in doubt holds its branch only, and nobody else fails for it


def test_other_branches_go_on_while_one_is_in_doubt(scene: Scene) -> None:
    call = doubtful.half_in_doubt(1)
    assert scene.run(call, kill="effect.after_body") == -9
    assert scene.run(call) == 0
    assert (scene.status, scene.acted(), scene.world.values("post")) == ("in_doubt", 1, [2])
    resolve(scene.url, "r", lambda doubt: hf.landed("acted"))
    assert scene.run(call) == 0
    assert (scene.result, scene.acted(), scene.world.values("post")) == (["acted", "posted-2"], 1, [2])


def test_a_parent_waits_for_a_child_that_is_in_doubt(scene: Scene) -> None:
    call = doubtful.guardian(1)
    assert scene.run(call, kill="effect.after_body") == -9
    assert scene.run(call) == 0
    child = json.loads(next(r.payload or "" for r in scene.load()[1] if r.kind == Kind.child))["run"]
    assert scene.load(child)[0].status == "in_doubt"
    assert scene.status == "waiting", "the child is in doubt, and the parent ended"
    assert resolve(scene.url, "r", lambda doubt: hf.landed("acted")) == ["doubtful#1"]
    assert scene.run(call) == 0
    assert (scene.status, scene.result, scene.acted()) == ("done", "child says acted", 1)
    assert scene.violations() == []
