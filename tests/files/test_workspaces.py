"""Directories that go with a run: what a body finds in them, and what becomes of what it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.journal.trees import Directory, Link
from holdfast.model import RunId
from holdfast.running.directories import Ignored, WorkingDirectory
from tests.eventually import eventually
from tests.files.agents import BUILT, coder, tree

TIMES: list[tuple[str, str]] = []  # bodies that began and ended


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_WORKSPACES", str(tmp_path / "workspaces"))
    monkeypatch.setenv("HOLDFAST_TEST_FOLDER", str(tmp_path))
    TIMES.clear()
    return tmp_path / "workspaces"


@hf.step
async def write(repo: hf.Workspace, name: str, text: str = "") -> list[str]:
    TIMES.append(("began", name))
    found = tree(repo.path)
    (repo.path / name).parent.mkdir(parents=True, exist_ok=True)
    (repo.path / name).write_text(text)
    await asyncio.sleep(0.01)
    TIMES.append(("ended", name))
    return found


@hf.step
async def link(repo: hf.Workspace, name: str, target: str) -> None:
    (repo.path / name).parent.mkdir(parents=True, exist_ok=True)
    (repo.path / name).symlink_to(target)


@hf.step
async def look(repo: hf.Workspace) -> list[str]:
    return tree(repo.path)


@hf.step(timeout=0.05)
def too_slow(repo: hf.Workspace, until: str) -> None:
    (repo.path / "early").write_text("1")
    path = repo.path
    while not Path(until).exists():
        time.sleep(0.005)
    (path / "late").write_text("1")
    Path(f"{until}.done").touch()


@hf.step
async def look_at_the_end(repo: hf.Workspace, until: str) -> list[str]:
    Path(until).touch()
    await eventually(Path(f"{until}.done").exists)
    return tree(repo.path)


@hf.effect
async def publish(repo: hf.Workspace) -> str:
    os.mkfifo(repo.path / "pipe")
    return "published"


@hf.effect(settle=0)
async def doubtful(repo: hf.Workspace) -> str:
    (repo.path / "half").write_text("1")
    raise OSError("nobody knows")


@doubtful.verify
async def find(repo: hf.Workspace) -> hf.Verdict[str]:
    found = tree(repo.path)
    (repo.path / "by verify").write_text("1")
    return hf.landed(" ".join(found))


@hf.agent
async def together(number: int) -> tuple[int, list[str]]:
    repo = await hf.workspace("repo")
    await asyncio.gather(*(write(repo, f"f{n}") for n in range(number)))
    return repo.version, await look(repo)


@hf.agent
async def linking(links: list[tuple[str, str]]) -> list[str]:
    repo, said = await hf.workspace("repo"), []
    for name, target in links:
        try:
            await link(repo, name, target)
            said.append("kept")
        except hf.UsageError as error:
            said.append("refused" if "leads out of it" in str(error) else str(error))
    return [*said, *await look(repo)]


@hf.agent
async def impatient(until: str) -> list[list[str]]:
    repo = await hf.workspace("repo")
    await write(repo, "kept")
    with contextlib.suppress(TimeoutError):
        await too_slow(repo, until)
    return [await look(repo), await look_at_the_end(repo, until)]


@hf.agent
async def doubting(number: int) -> list[object]:
    repo = await hf.workspace("repo")
    await write(repo, "a")
    said: list[object] = [await doubtful(repo)]
    try:
        await publish(repo)
    except hf.ResultNotStored as error:
        said.append(error.__notes__[0][:4])
    return [*said, await look(repo), repo.version]


@hf.agent
async def asking(number: int) -> list[str]:
    repo = await hf.workspace("repo", ignore=["cache", "build/*.o"])
    await write(repo, "cache/x")
    await write(repo, "build/y.o")
    await write(repo, "build/z.c")
    await hf.receive(("go", bool))
    return await look(repo)


@hf.agent
async def two(number: int) -> list[str]:
    one, other = await hf.workspace("one"), await hf.workspace("other")
    await write(one, "a")
    await write(other, "b")
    await both(other, target=one)
    return [*await look(one), *await look(other), str(one.version), str(other.version)]


@hf.step
async def both(source: hf.Workspace, *, target: hf.Workspace) -> None:
    (target.path / "b").write_bytes((source.path / "b").read_bytes())


@hf.agent
async def wrong(name: str) -> None:
    await hf.workspace(name)


AGENTS: list[hf.Agent[..., Any]] = [together, linking, impatient, doubting, asking, two, wrong, coder]


def live(folder: Path, story: Callable[[hf.Holdfast], Awaitable[None]]) -> None:
    async def told() -> None:
        async with hf.connect(folder / "store.db", agents=AGENTS) as app:
            await story(app)

    asyncio.run(told())


async def is_waiting(run: hf.Run[Any]) -> bool:
    return await run.status() == "waiting"


def test_modes_links_deletions_and_empty_directories_are_kept_and_a_version_is_saved(
    tmp_path: Path, directories: Path
) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(coder(1))
        assert await run.result() == BUILT
        kept = {each.version: each for each in await run.artifacts() if each.kind == "workspace"}
        assert [each.key for each in kept.values()] == ["build#1", "build#2", "break_it#1", "push#1"]
        await kept[2].save(tmp_path / "saved")
        assert tree(tmp_path / "saved") == BUILT[2]
        with pytest.raises(hf.UsageError, match="new or empty"):
            await kept[2].save(tmp_path / "saved")

    live(tmp_path, story)
    assert not directories.exists() or not list(directories.iterdir()), "the run has ended"


def test_one_body_at_a_time_has_it_and_nothing_of_any_is_lost(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(together(6))
        assert await run.result() == (6, [f"f{n} 644 0" for n in range(6)])
        assert [what for what, _ in TIMES] == ["began", "ended"] * 6

    live(tmp_path, story)


LINKS = {
    "/etc/passwd": "refused",
    "../outside": "refused",
    "d/../../outside": "refused",
    "kept/file": "kept",  # dangling, and inside
    "top/../outside": "refused",  # `top` is the directory itself, so `..` is above it
}


def test_links_that_lead_out_are_refused_and_the_others_kept(tmp_path: Path) -> None:
    links = [("top", "."), *((f"link{n}", target) for n, target in enumerate(LINKS))]

    async def story(app: hf.Holdfast) -> None:
        run = await app.start(linking(links))
        assert await run.result() == ["kept", *LINKS.values(), "link3 -> kept/file", "top -> ."]

    live(tmp_path, story)


def test_a_stored_link_that_leads_out_is_refused_as_well(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        place = WorkingDirectory(str(tmp_path / "place"), Ignored(()))
        for target in ("/etc/passwd", "../../x"):
            with pytest.raises(hf.DamagedFile):
                await place.hold(app._store, RunId("r"), Directory(0o755, {"evil": Link(target)}))
            assert tree(Path(place.path)) == []

    live(tmp_path, story)


def test_what_a_thread_that_took_too_long_writes_is_seen_by_nobody(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(impatient(str(tmp_path / "until")))
        assert await run.result() == [["kept 644 0"], ["kept 644 0"]]

    live(tmp_path, story)


def test_an_effect_in_doubt_is_taken_back_and_what_cannot_be_stored_is_said(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(doubting(1))
        assert await run.result() == ["a 644 0", "pipe", ["a 644 0"], 1]

    live(tmp_path, story)


def test_what_is_ignored_stays_here_and_is_not_stored(tmp_path: Path, directories: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(asking(1), id="r")
        await eventually(lambda: is_waiting(run))
        (place,) = [each for each in directories.glob("*/*/files") if not each.parent.name.startswith(".")]
        assert (place / "cache/x").exists()
        assert (place / "build/y.o").exists()
        (place / "build/z.c").write_text("changed by somebody")
        (place / "junk").mkdir()
        await run.send("go", True)
        assert await run.result() == ["build/", "build/y.o 644 0", "build/z.c 644 0", "cache/", "cache/x 644 0"]
        last = (await run.artifacts())[-1]
        await last.save(tmp_path / "saved")
        assert tree(tmp_path / "saved") == ["build/", "build/z.c 644 0"]

    live(tmp_path, story)


def test_a_fork_has_the_workspace_and_the_files_of_its_point(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(asking(1), id="r")
        await eventually(lambda: is_waiting(run))
        fork = await run.fork(id="fork")
        await run.cancel()
        await app.prune(older_than=0)
        await fork.send("go", True)
        assert await fork.result() == ["build/", "build/z.c 644 0"]
        found = await fork.artifacts()
        assert [each.version for each in found if each.kind == "workspace"] == [1, 2]
        assert {each.state.value for each in found} == {"stored"}

    live(tmp_path, story)


def test_a_body_can_have_several(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(two(1))
        assert await run.result() == ["a 644 0", "b 644 0", "b 644 0", "2", "1"]

    live(tmp_path, story)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".git", "x" * 101])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    async def story(app: hf.Holdfast) -> None:
        with pytest.raises(hf.RunFailed, match="UsageError"):
            await (await app.start(wrong(name))).result()

    live(tmp_path, story)


@pytest.mark.corrupts
def test_a_damaged_version_is_told_and_never_handed_out(tmp_path: Path) -> None:
    async def before(app: hf.Holdfast) -> None:
        run = await app.start(asking(1), id="r")
        await eventually(lambda: is_waiting(run))

    async def after(app: hf.Holdfast) -> None:
        run = app.get("r")
        assert {each.state.value for each in await run.artifacts() if each.kind == "workspace"} == {"damaged"}
        await run.resume()
        await run.send("go", True)
        with pytest.raises(hf.RunFailed, match="DamagedFile"):
            await run.result()

    live(tmp_path, before)
    for folder in (tmp_path / "workspaces").glob("*/*"):
        (folder / "idle").unlink()
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("UPDATE chunks SET data = CAST(data || x'20' AS BLOB)")
    connection.close()
    live(tmp_path, after)


def test_a_change_that_leaves_size_and_times_is_seen_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system's clock ticks seldom: what was written within the tick of the last look is not taken as known."""
    place = WorkingDirectory(str(tmp_path / "place"), Ignored(()))

    def saved() -> str:
        found: list[str] = []
        fresh: dict[str, Any] = {}
        for _ in place.chunks(lambda tree, *_: found.append(tree.sha256), fresh):
            pass
        place.learn(fresh)
        return found[0]

    file = Path(place.path, "file")
    seen = set()
    for number in range(100):
        file.write_text(f"{number:05}")
        seen.add(saved())
    assert len(seen) == 100
    monkeypatch.setattr(place, "_tick", lambda: 0)
    saved()
    assert not any(each.files for each in place._known.values())


@hf.agent(name="keeper")
async def keeps() -> str:
    one, other = await hf.workspace("one"), await hf.workspace("other")
    await write(other, "a")
    await hf.receive(("go", bool))
    return f"{one.version} {other.version}"


@hf.agent(name="keeper")
async def keeps_otherwise() -> str:
    other, one = await hf.workspace("other"), await hf.workspace("one")
    await write(other, "a")
    await hf.receive(("go", bool))
    return f"now {one.version} {other.version}"


@pytest.mark.parametrize(
    ("code", "said"), [pytest.param(keeps, "0 1", marks=pytest.mark.prove), (keeps_otherwise, "now 0 1")]
)
def test_a_replay_finds_a_workspace_by_its_name(code: hf.Agent[[], str], said: str, tmp_path: Path) -> None:
    """With other code, in another order, too: nothing is noted as changed, and nothing is recorded anew."""

    async def first() -> None:
        async with hf.connect(tmp_path / "store.db", agents=[keeps]) as app:
            run = await app.start(keeps(), id="run")
            await eventually(lambda: is_waiting(run))

    async def then() -> None:
        async with hf.connect(tmp_path / "store.db", agents=[code]) as app:
            run = app.get("run", code)
            await run.send("go", True)
            assert await run.result() == said
            records = await app._store.records(RunId("run"))
            assert [record.name for record in records].count("hf.workspace") == 2
            assert "unstable" not in [record.name for record in records]

    asyncio.run(first())
    asyncio.run(then())


@pytest.mark.prove
def test_five_thousand_files_and_three_changes(tmp_path: Path) -> None:
    took: list[float] = []

    @hf.step
    def fill(repo: hf.Workspace) -> None:
        for number in range(5000):
            path = repo.path / f"d{number % 50}"
            path.mkdir(exist_ok=True)
            (path / f"{number}.txt").write_text(f"file {number} " * 80)
        took.append(time.process_time())

    @hf.step
    def change(repo: hf.Workspace, number: int) -> None:
        (repo.path / f"d1/{number}.new").write_text("changed")
        (repo.path / f"d2/{50 * number + 2}.txt").unlink()
        (repo.path / "new").write_text(f"new {number}")
        took.append(time.process_time())

    @hf.agent
    async def filling(rounds: int) -> int:
        repo = await hf.workspace("repo")
        await fill(repo)
        took.append(time.process_time())
        for number in range(rounds):
            await change(repo, number)
            took.append(time.process_time())
        return repo.version

    async def story(app: hf.Holdfast) -> None:
        run = await app.start(filling(5))
        assert await run.result() == 6
        saves = [took[n + 1] - took[n] for n in range(0, len(took), 2)]
        print("saves took", saves)
        assert min(saves[1:]) <= 0.1 * saves[0], "CPU; a collection of garbage may be in the others"

    AGENTS.append(filling)
    live(tmp_path, story)
