"""What a run relies on outside: looked at once for each claim, before anything new is executed."""

from __future__ import annotations

import asyncio
import http.server
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.model import Kind, NoteKind, Record
from holdfast.model.diagnoses import Change, change_text
from holdfast.running.guards import Guard, look
from holdfast.testing.ledger import VARIABLE, Ledger
from tests import workers
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.limits import agents
from tests.workers import asked, seen, until

# fingerprints


@pytest.fixture
def page() -> Iterator[tuple[str, dict[str, str]]]:
    """A page, and what it says: its text, and headers."""
    says = {"text": "one"}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(says.get("status", "200")))
            if "etag" in says:
                self.send_header("ETag", says["etag"])
            self.end_headers()
            self.wfile.write(says["text"].encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", says
        server.shutdown()


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", folder, *own, *words], check=True, capture_output=True)


def test_a_fingerprint_is_the_same_until_something_changes(tmp_path: Path, page: tuple[str, dict[str, str]]) -> None:
    def changes(take: Callable[[], str], *acts: Callable[[], object]) -> list[str]:
        """What it is at first, and after each of these; each time it is another one."""
        found = [take()]
        for act in acts:
            assert take() == found[-1]
            act()
            found.append(take())
        assert len(set(found)) == len(found), found
        return found

    file, folder, repo = tmp_path / "file", tmp_path / "folder", tmp_path / "repo"
    assert changes(hf.guards.file(file), lambda: file.write_text("a"), lambda: file.write_text("b"))[0] == "missing"
    (folder / "deep").mkdir(parents=True)
    said = changes(
        hf.guards.directory(folder),
        lambda: (folder / "deep" / "a").write_text("a"),
        lambda: (folder / "deep" / "a").write_text("b"),
        lambda: (folder / "deep" / "a").rename(folder / "b"),
        lambda: (folder / "link").symlink_to("/nowhere"),
        lambda: [(folder / f"f{n}").write_text("") for n in range(200)],
    )
    assert "b " in said[3]
    assert all(len(each) < 8000 for each in said)
    repo.mkdir()
    git(repo, "init")
    said = changes(
        hf.guards.git(repo),
        lambda: (repo / "a").write_text("a"),
        lambda: (repo / "a").write_text("b"),
        lambda: [git(repo, *words) for words in (("add", "a"), ("commit", "-m", "one"))],  # type: ignore[func-returns-value]
        lambda: git(repo, "checkout", "-b", "other"),
        lambda: (repo / "a").write_text("c"),
        lambda: git(repo, "commit", "-am", "two"),
    )
    assert said[-1].startswith("other at ")
    with pytest.raises(OSError, match="not a git repository"):
        hf.guards.git(folder)()
    url, says = page
    said = changes(
        hf.guards.url(url),
        lambda: says.update(text="two"),
        lambda: says.update(etag='"1"'),
        lambda: says.update(etag='"2"'),
        lambda: says.update(status="404"),
    )
    assert said[-1] == "status 404"
    with pytest.raises(hf.UsageError, match="begins with http"):
        hf.guards.url("file:///etc/passwd")
    with pytest.raises(hf.UsageError, match=r"use hf\.guards\.directory"):
        hf.guards.file(folder)()


def test_what_hangs_raises_or_is_no_text_is_told_and_keeps_nobody() -> None:
    async def hangs() -> str:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(3600)

    def sleeps() -> str:
        time.sleep(3600)
        return ""

    def raises() -> str:
        raise OSError("no disk")

    def exits() -> str:
        raise SystemExit(3)

    async def story() -> None:
        texts: list[Any] = [hangs, sleeps, raises, exits, lambda: 5, lambda: "x" * 9000, lambda: "same"]
        guards = [Guard(str(n), fingerprint, "same", False) for n, fingerprint in enumerate(texts)]
        looks = [*await look(guards[:2], 0.2), *await look(guards[2:], 60)]
        found = {change.name: change for change in looks}
        assert {name: change.now for name, change in found.items()} == dict.fromkeys("012345")
        assert found["0"].failure == found["1"].failure == "TimeoutError: it took longer than 0.2 s"
        assert found["2"].failure == "OSError: no disk"
        assert "SystemExit(3)" in found["3"].failure
        assert "A fingerprint is text; got int" in found["4"].failure
        assert "at most 8,000 characters" in found["5"].failure

    asyncio.run(story())


def test_of_texts_with_several_lines_those_that_differ_are_told() -> None:
    assert change_text(Change("a", "1", "2")) == "a: 1 → 2"
    assert change_text(Change("a", "", "2")) == "a: nothing → 2"
    assert change_text(Change("a", "x\ny\nz", "x\nz\nw")) == "a: y → w"
    assert change_text(Change("a", "1", None, "no")) == "a could not be looked at: no"


# runs


class Outside:
    """What a run relies on, and how often that was looked at."""

    def __init__(self, text: str = "one") -> None:
        self.text = text
        self.looks = 0
        self.bodies: list[int] = []

    def __call__(self) -> str:
        self.looks += 1
        if self.text == "raise":
            raise OSError("gone")
        return self.text


outside = Outside()


@hf.step
async def work(n: int) -> int:
    outside.bodies.append(n)
    return n


@hf.agent
async def relies(on_change: str) -> str:
    await hf.guard("it", outside, on_change=on_change)  # type: ignore[arg-type]
    await work(1)
    await hf.ask("go on?")
    await asyncio.gather(work(2), work(3))
    await hf.ask("and now?")
    await work(4)
    return "done"


async def parked(run: hf.Run[Any]) -> hf.Question:
    found = await asked(run)
    await until(run, "waiting")
    return found[0]


@pytest.fixture(autouse=True)
def fresh() -> None:
    outside.__init__()  # type: ignore[misc]


def test_what_changed_while_a_run_was_parked_is_on_its_receipt_and_its_code_does_not_see_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[relies]) as app:
            run = await app.start(relies("report"))
            question = await parked(run)
            assert outside.looks == 1
            outside.text = "two"
            await question.answer(True)
            question = await parked(run)
            assert (outside.looks, outside.bodies) == (2, [1, 2, 3]), "once for each claim, however many branches"
            (receipt,) = await run.receipts()
            assert receipt.woken
            assert receipt.gap == [{"name": "it", "was": "one", "now": "two", "failure": None, "text": "it: one → two"}]
            await question.answer(True)
            assert await run.result(timeout=60) == "done"
            assert outside.looks == 3
            assert len(await run.receipts()) == 1, "from there on what was found counts"
            assert "it: one → two" in [item.detail for item in await run.history()]

    asyncio.run(story())


def test_a_guard_that_blocks_waits_for_somebody_who_accepts(tmp_path: Path) -> None:
    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[relies]) as app:
            run = await app.start(relies("block"))
            question = await parked(run)
            outside.text = "two"
            await question.answer(True)
            with pytest.raises(hf.RunBlocked, match="it: one → two") as error:
                await run.result(timeout=60)
            assert error.value.reason is not None
            assert error.value.reason["why"] == "changed outside"
            assert outside.bodies == [1], "nothing new was executed"
            outside.text = "three"
            await run.resume(by="ann", note="fine")
            question = await parked(run)
            assert outside.bodies == [1, 2, 3]
            first, second = await run.receipts()
            assert (first.blocked, first.accepted_by) == (True, None)
            assert (second.gap[0]["now"], second.accepted_by) == ("three", "ann")
            outside.text = "raise"
            await question.answer(True)
            with pytest.raises(hf.RunBlocked, match="it could not be looked at: OSError: gone"):
                await run.result(timeout=60)
            assert await run.cancel() is hf.Status.cancelled

            run = await app.start(relies("block"))
            with pytest.raises(hf.RunFailed, match="OSError: gone"):
                await run.result(timeout=60)

    asyncio.run(story())


def test_what_comes_to_be_as_it_was_needs_nobody_and_what_the_run_changes_itself_is_taken_again(tmp_path: Path) -> None:
    @hf.agent
    async def changes_itself() -> int:
        await hf.guard("it", outside, on_change="block")
        await work(1)
        outside.text = "mine"
        await hf.guard("it", outside, on_change="block")
        await hf.ask("go on?")
        outside.text = "mine again"
        await hf.guard("it", outside, on_change="block")  # what was recorded under its name is not looked at any more
        return await work(2)

    async def story() -> None:
        async with hf.connect(tmp_path / "a.db", agents=[changes_itself]) as app:
            run = await app.start(changes_itself())
            question = await parked(run)
            await question.answer(True)
            assert await run.result(timeout=60) == 2
            assert await run.receipts() == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hf.guard("", outside), "takes a name"),
        (lambda: hf.guard("a", "text"), "takes a function that returns text; got 'text'"),  # type: ignore[arg-type]
        (lambda: hf.guard("a", outside, on_change="x"), "takes 'report' or 'block'; got 'x'"),  # type: ignore[arg-type]
    ],
)
def test_a_guard_that_makes_no_sense_is_refused(call: Callable[[], Any], said: str, tmp_path: Path) -> None:
    @hf.agent
    async def wrong() -> None:
        await call()

    with pytest.raises(hf.RunFailed, match=said):
        hf.run(wrong(), url=f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(hf.NotInRun):
        asyncio.run(hf.guard("a", outside))


# killed


class Scene(workers.Scene):
    def __init__(self, folder: Path, forkserver: ForkServer) -> None:
        super().__init__(folder, forkserver, agents=agents.__name__, settings={"sweep_s": 0.1, "renew_s": 0.2})
        self.env[VARIABLE] = str(folder / "ledger.jsonl")
        (folder / "outside").mkdir()
        (folder / "outside" / "file").write_text("one")


@pytest.mark.postgres
def test_a_run_that_was_killed_finds_what_changed_before_anything_new_is_executed(
    tmp_path: Path, forkserver: ForkServer
) -> None:
    """Killed in a body, then at `guard.taken` and at `guard.looked`: what is not recorded is looked at again."""

    def both_are_taken(records: list[Record]) -> bool:  # that they have begun may be on disk before that
        return sum(r.name == "hf:guard" and r.kind == Kind.done for r in records) == 2

    async def story(scene: Scene) -> None:
        async with scene.client() as app:
            run = await app.start(agents.guarded("block"), id="run")
            assert scene.worker(fault="guard.taken:kill@1").wait(60) == -9
            with scene.working():
                await seen(lambda: app._store.records(run.id), both_are_taken, what=str)
            (tmp_path / "outside" / "file").write_text("two")
            assert scene.worker(fault="guard.looked:kill@1").wait(60) == -9
            with scene.working():
                await until(run, "blocked")
            assert not (tmp_path / "gate.reached").exists() or len((tmp_path / "gate.reached").read_text().split()) == 1
            (tmp_path / "gate.open").touch()
            await run.resume(by="ann")
            with scene.working():
                assert await run.result(timeout=60) == [1, 2]
            records = await app._store.records(run.id)
            notes = [r for r in records if r.kind == Kind.noted and r.name == NoteKind.guarded]
            assert len(notes) == 2, "that it is blocked, and that it was accepted"
            receipts = await run.receipts()
            assert [each.accepted_by for each in receipts if each.gap] == [None, "ann"]
            assert all(each.lost is not None for each in receipts if not each.accepted_by)
            looks = (tmp_path / "counted").read_text().split()
            assert len(looks) == len(set(looks)), "no process looked twice"

    with Scene(tmp_path, forkserver) as scene:
        asyncio.run(story(scene))


@pytest.mark.prove
@pytest.mark.parametrize("changes", [True, False], ids=["changed", "as it was"])
@pytest.mark.parametrize("parks", [True, False], ids=["parked", "down"])
@pytest.mark.parametrize("kind", ["file", "directory", "git", "url", "own"])
def test_what_changes_is_found_however_the_run_was_away(
    kind: str, parks: bool, changes: bool, page: tuple[str, dict[str, str]], tmp_path: Path, forkserver: ForkServer
) -> None:
    """And what does not change is found by nobody."""

    async def story(scene: Scene) -> None:
        async with scene.client() as app:
            run = await app.start(agents.relying(kind, parks), id="run")
            if parks:
                with scene.working():
                    await parked(run)
            else:
                worker = scene.worker()
                await eventually((tmp_path / "gate.reached").exists)
                worker.kill()
            if changes:
                (tmp_path / "outside" / "file").write_text("another")
                page[1].update(text="another")
            (tmp_path / "gate.open").touch()
            for question in await run.questions():
                await question.answer(True)
            with scene.working():
                await until(run, "blocked" if changes else "done")
            thoughts = [line for line in Ledger(tmp_path / "ledger.jsonl").lines() if line.key == "think#1"]
            assert bool(thoughts) != changes
            if not changes:
                assert [each.gap for each in await run.receipts()] == ([] if parks else [[]])
                return
            await run.resume(by="ann")
            with scene.working():
                assert await run.result(timeout=60) == 1
            receipts = await run.receipts()
            assert [[change["name"] for change in each.gap] for each in receipts] == [[kind], [kind]]
            assert [(each.blocked, each.accepted_by) for each in receipts] == [(True, None), (False, "ann")]

    with Scene(tmp_path, forkserver) as scene:
        scene.env["HOLDFAST_TEST_PAGE"] = page[0]
        git(tmp_path / "outside", "init")
        git(tmp_path / "outside", "add", "file")
        git(tmp_path / "outside", "commit", "-m", "one")
        asyncio.run(story(scene))
