"""What runs put out: names, versions, kinds, what is listed, read and saved."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast as hf
from holdfast.control.upkeep.copying import Copies
from holdfast.control.upkeep.filing import copy_files
from holdfast.control.upkeep.moving import Mover
from holdfast.history.lookup import row_of
from holdfast.journal.files import CHUNK
from holdfast.model import RunId
from holdfast.store import open_store
from tests.eventually import eventually
from tests.files.agents import LARGE


@hf.step
async def put_out(name: str, text: str) -> hf.Artifact:
    return await hf.artifact(name, text)


@hf.step
async def many(count: int) -> int:
    for number in range(count):
        await hf.artifact("log", f"line {number}")
    return count


@hf.step
async def large(path: str) -> hf.Artifact:
    return await hf.artifact("large", path=path, kind="data", media_type="x/y")


@hf.agent
async def publisher(texts: list[str]) -> list[int]:
    return [(await put_out("a", text)).version for text in texts]


@hf.agent
async def lister(count: int) -> int:
    return await many(count)


@hf.agent
async def copier(path: str) -> str:
    artifact = await large(path)
    whole = sha256()
    async for data in artifact.chunks():
        whole.update(data)
    assert await artifact.read() == Path(path).read_bytes()
    return whole.hexdigest()


@hf.agent
async def waits(path: str) -> None:
    await large(path)
    await hf.receive(("go", bool))


async def is_waiting(run: hf.Run[Any]) -> bool:
    return await run.status() == "waiting"


@hf.agent
async def racing(number: int) -> list[int]:
    found = await asyncio.gather(*(put_out("shared", f"text {n % 3}") for n in range(number)))
    return sorted({each.version for each in found})


@hf.agent
async def wrong(name: str, kind: str | None = None) -> None:
    await hf.artifact(name, b"x", kind=kind)


@hf.agent
async def missing(path: str) -> str:
    try:
        await hf.artifact("gone", path=path)
    except FileNotFoundError:
        return "not there"
    return "there"


@hf.agent
async def cancelled(number: int) -> str:
    try:
        async with asyncio.timeout(0.01):
            await slow(number)
    except TimeoutError:
        return "cut off"
    return "done"


@hf.step
async def slow(number: int) -> None:
    await hf.artifact("cut-off", "x")
    await asyncio.sleep(60)


Story = Callable[[hf.Holdfast], Awaitable[None]]
AGENTS: list[hf.Agent[..., Any]] = [publisher, lister, waits, copier, racing, wrong, missing, cancelled]


def live(folder: Path, story: Story) -> None:
    async def told() -> None:
        async with hf.connect(folder / "store.db", agents=AGENTS) as app:
            await story(app)

    asyncio.run(told())


def files_of(found: list[hf.Artifact]) -> list[tuple[str, int]]:
    return [(each.name, each.version) for each in found if each.key]


def test_the_same_bytes_are_the_same_version_also_after_a_restart(tmp_path: Path) -> None:
    async def first(app: hf.Holdfast) -> None:
        run = await app.start(publisher(["one", "two", "one", "three"]), id="r")
        assert await run.result() == [1, 2, 1, 3]
        assert files_of(await run.artifacts()) == [("a", 2), ("a", 1), ("a", 3)]
        record = (await run.artifacts())[0]
        assert (record.kind, record.name, record.state) == ("record", "journal", "stored")
        with pytest.raises(hf.UsageError, match="no bytes"):
            await record.read()

    live(tmp_path, first)


def test_a_thousand_versions_are_listed_and_read(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(lister(1000), id="r")
        assert await run.result() == 1000
        found = [each for each in await run.artifacts() if each.kind == "file"]
        assert [each.version for each in found] == list(range(1, 1001))
        assert await found[199].read() == b"line 199"

    live(tmp_path, story)


def test_branches_that_put_the_same_name_out_at_once_get_each_their_version(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(racing(12))
        assert await run.result() == [1, 2, 3]
        assert sorted(files_of(await run.artifacts())) == [("shared", 1), ("shared", 2), ("shared", 3)]

    live(tmp_path, story)


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_file_of_any_size_comes_back_and_is_saved_as_a_whole(tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size))

    async def story(app: hf.Holdfast) -> None:
        run = await app.start(copier(str(source)))
        assert await run.result() == sha256(source.read_bytes()).hexdigest()
        artifact = (await run.artifacts())[1]
        assert (artifact.size, artifact.kind, artifact.media_type) == (size, "data", "x/y")
        (tmp_path / "link").symlink_to("/etc/hostname")
        for target in (tmp_path / "saved", tmp_path / "link"):
            assert await artifact.save(target) == target
            assert not target.is_symlink()
            assert target.read_bytes() == source.read_bytes()
        assert await artifact.save(tmp_path) == tmp_path / "large"
        assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]

    live(tmp_path, story)


NAMES = ["../up", "/abs", "a/../b", "", ".", "a//b", "a\nb", "\x1b[31m", "a\u202eb", "b\\c", "c:/x", "a" * 256, " a"]


OURS = ["record", "workspace", "plan", "message", "partial"]  # kinds


def test_names_that_lead_elsewhere_or_cannot_be_seen_are_refused(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        for call in [*map(wrong, NAMES), *(wrong("a", kind) for kind in OURS)]:
            run = await app.start(call)
            with pytest.raises(hf.RunFailed, match="UsageError"):
                await run.result()
            assert files_of(await run.artifacts()) == []

    live(tmp_path, story)


def test_an_artifact_takes_one_thing_and_says_so() -> None:
    with pytest.raises(hf.NotInRun):
        hf.artifact("a", "b")


def test_a_file_that_is_not_there_is_an_error_that_a_replay_repeats(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(missing(str(tmp_path / "nothing")), id="r")
        assert await run.result() == "not there"
        assert files_of(await run.artifacts()) == []

    live(tmp_path, story)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A device never ends, and to open a pipe that nobody writes to is to wait for ever."""
    os.mkfifo(tmp_path / "pipe")

    async def story(app: hf.Holdfast) -> None:
        for path, said in ((tmp_path / "pipe", "a pipe or a device"), ("/dev/zero", "a pipe"), (tmp_path, "directory")):
            run = await app.start(missing(str(path)))
            with pytest.raises(hf.RunFailed, match=said):
                await run.result(timeout=60)
            assert files_of(await run.artifacts()) == []

    live(tmp_path, story)


def test_a_step_that_the_code_cancels_leaves_none(tmp_path: Path) -> None:
    async def story(app: hf.Holdfast) -> None:
        run = await app.start(cancelled(1))
        assert await run.result() == "cut off"
        assert files_of(await run.artifacts()) == []

    live(tmp_path, story)


# damage, and what becomes of files elsewhere


def change(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    assert connection.changes() > 0
    connection.close()


@pytest.mark.corrupts
@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("UPDATE chunks SET data = CAST(substr(data, 1, 9) || x'ff' || substr(data, 11) AS BLOB)", "damaged"),
        ("DELETE FROM chunks WHERE length(data) = 32 * 2 OR length(data) < 50000", "missing"),
        ("UPDATE chunks SET data = zeroblob(64) WHERE length(data) = 64", "damaged"),
    ],
)
def test_what_is_damaged_or_gone_is_told_and_keeps_nobody_from_anything(
    tmp_path: Path, statement: str, state: str
) -> None:
    source = tmp_path / "source"
    source.write_bytes(LARGE)

    async def before(app: hf.Holdfast) -> None:
        await (await app.start(copier(str(source)), id="r")).result()

    async def after(app: hf.Holdfast) -> None:
        run = app.get("r")
        artifact = (await run.artifacts())[1]
        assert artifact.state == state
        with pytest.raises(hf.DamagedFile):
            await artifact.read()
        with pytest.raises(hf.DamagedFile):
            await artifact.save(tmp_path / "saved")
        assert not list(tmp_path.glob("*saved*"))
        assert (await run.artifacts(check=False))[1].state == "stored"
        assert (await run.verify_journal()).is_ok
        assert await run.status() == "done"
        assert await run.result()

    live(tmp_path, before)
    change(tmp_path / "store.db", statement)
    live(tmp_path, after)


def test_copies_moves_and_forks_take_the_files_along(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(LARGE)

    async def story(app: hf.Holdfast) -> None:
        for name in ("copied", "moved"):
            await (await app.start(copier(str(source)), id=name)).result()
        waiting = await app.start(waits(str(source)), id="waiting")
        await eventually(lambda: is_waiting(waiting))
        store, other = app._store, open_store(str(tmp_path / "other.db"), settings=hf.Settings())
        await other.open()
        try:
            copied, moved, unfinished = [await row_of(store, RunId(name)) for name in ("copied", "moved", "waiting")]
            for _ in range(2):
                (transfer,) = await Copies(store, other).copy([copied])
                assert transfer.outcome in ("copied", "there already")
            for row in (moved, unfinished):
                assert [each.outcome for each in await Mover(store, other).move(row)] == ["moved"]
                assert await store.chunk_page(row.id, after="", limit=9) == []
            count = len(await store.chunk_page(RunId("copied"), after="", limit=9))
            assert count == 3, "two chunks and their list"
            assert await copy_files(store, RunId("copied"), store, as_id=RunId("fork")) == count
            assert await copy_files(store, RunId("copied"), store, as_id=RunId("fork")) == 0
        finally:
            await other.close()
        async with hf.connect(tmp_path / "other.db") as there:
            for name in ("copied", "moved", "waiting"):
                assert await (await there.get(name).artifacts())[1].read() == LARGE
        await app.prune(older_than=0)
        assert await store.chunk_page(RunId("copied"), after="", limit=9) == []
        assert len(await store.chunk_page(RunId("fork"), after="", limit=9)) == count, "it stands alone"

    live(tmp_path, story)


def test_a_repeated_attempt_stores_only_what_is_missing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 * CHUNK))

    async def story(app: hf.Holdfast) -> None:
        store = app._store
        put = store.put_chunks
        stored: list[str] = []

        async def counted(run_id: RunId, chunks: dict[str, bytes], *, fence: object) -> None:
            stored.extend(chunks)
            if len(stored) == 4:
                raise OSError(5, "the disk is tired")
            await put(run_id, chunks, fence=fence)  # type: ignore[arg-type]

        store.put_chunks = counted  # type: ignore[method-assign,assignment]
        run = await app.start(retried(str(source)))
        assert await run.result() == 8 * CHUNK
        assert len(stored) == 4 + (8 + 1 - 3), "what the first attempt has stored is not stored again"
        assert files_of(await run.artifacts()) == [("large", 1)]

    AGENTS.append(retried)
    live(tmp_path, story)


@hf.step(retries=1)
async def twice(path: str) -> int:
    return (await hf.artifact("large", path=path)).size or 0


@hf.agent
async def retried(path: str) -> int:
    return await twice(path)
