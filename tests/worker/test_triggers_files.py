"""Files that start runs: each change once, whatever was down meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.automation.triggers import files
from holdfast.automation.triggers.scanning import Pattern, differing
from holdfast.base import clock
from holdfast.errors import StoreError
from tests.eventually import eventually
from tests.forkserver import ForkServer
from tests.worker.inboxes import fast, has, has_noted, inbox_of, put, reported
from tests.worker.logged import logged
from tests.worker.outside import World, counted, going, process, world

#: Rows are made up: nobody executes these runs.
pytestmark = pytest.mark.corrupts


# patterns


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.txt", {"a.txt"}),
        ("a.txt", {"a.txt"}),
        ("*", {"a.txt", "b.md"}),
        ("[ab].*", {"a.txt", "b.md"}),
        (".*", {".hidden"}),
        ("**", {"a.txt", "b.md", "one/a.txt", "one/two/a.txt", "one/two/c.md"}),
        ("**/*.txt", {"a.txt", "one/a.txt", "one/two/a.txt"}),
        ("**/a.txt", {"a.txt", "one/a.txt", "one/two/a.txt"}),
        ("*/a.txt", {"one/a.txt"}),
        ("one/*/a.txt", {"one/two/a.txt"}),
        ("one/**/*.txt", {"one/a.txt", "one/two/a.txt"}),
        ("**/two/**/*.md", {"one/two/c.md"}),
        ("one/**/two/*", {"one/two/a.txt", "one/two/c.md"}),
        ("nowhere/*.txt", set()),
    ],
)
def test_a_pattern_finds_files(tmp_path: Path, pattern: str, found: set[str]) -> None:
    for name in ("a.txt", "b.md", ".hidden", ".git/a.txt", "one/a.txt", "one/two/a.txt", "one/two/c.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    (tmp_path / "one" / "loop").symlink_to(tmp_path)
    (tmp_path / "broken.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.txt")
    scan = Pattern(str(tmp_path / pattern)).scan()
    assert {os.path.relpath(path, tmp_path) for path in scan.found} == found


def test_files_below_a_folder_that_cannot_be_read_do_not_count_as_deleted(tmp_path: Path) -> None:
    for name in ("one/a.txt", "two/a.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    pattern = Pattern(str(tmp_path / "**/*.txt"))
    known = pattern.scan().found
    shutil.rmtree(tmp_path / "one")
    assert {Path(path).parent.name for path in differing(pattern.scan(), known)} == {"one"}
    shutil.rmtree(tmp_path)
    assert differing(pattern.scan(), known) == {}  # no folder to look into: not mounted?


# changes


def test_created_and_changed_files_start_runs_and_files_that_were_there_do_not(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        put(inbox, old="old", touched="same", replaced="same")
        async with world(tmp_path) as here:
            info = await here.triggers.declare(
                fast(inbox / "*.txt"), "read", name="t", queue="slow", queue_key="{change}"
            )
            assert info.config["pattern"] == str(inbox / "*.txt")
            put(inbox, new="new", old="another")
            (inbox / "new.md").write_text("no")
            os.utime(inbox / "touched.txt")
            put(tmp_path, other="same")
            os.replace(tmp_path / "other.txt", inbox / "replaced.txt")
            async with going(here):
                await has(here, ("new.txt", "created", 3), ("old.txt", "changed", 7))
                put(inbox, new="newer")
                await has(here, ("new.txt", "created", 3), ("old.txt", "changed", 7), ("new.txt", "changed", 5))
                await counted(here, received=3, matched=3, started=3)
            run = next(row for row in await here.runs() if row.queue_key == "created")
            assert (run.agent, run.queue) == ("read", "slow")
            event = here.starts[0].value
            assert json.loads(here.starts[0].text) == {
                "path": event.path,
                "change": event.change,
                "digest": event.digest,
                "size": event.size,
            }
            info = (await here.triggers.list())[0]
            assert [note.what for note in info.recent] == ["started"] * 3

    asyncio.run(main())


def test_existing_files_are_reported_if_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        put(inbox, a="a")
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt", existing=True), "read", name="t")
            async with going(here):
                await has(here, ("a.txt", "created", 1))

    asyncio.run(main())


def test_content_that_comes_back_is_a_change_as_any_other(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            async with going(here):
                expected: list[tuple[str, str, int]] = []
                for text, change in (("A", "created"), ("BB", "changed"), ("A", "changed"), ("BB", "changed")):
                    put(inbox, a=text)
                    expected.append(("a.txt", change, len(text)))
                    await has(here, *expected)
                assert await reported(here) == expected

    asyncio.run(main())


def test_deletions_are_reported_if_asked_for_and_a_file_that_comes_again_is_created_again(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        put(inbox, a="a", b="bb")
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt", kinds=("created", "deleted")), "read", name="t")
            async with going(here):
                (inbox / "a.txt").unlink()
                await has(here, ("a.txt", "deleted", 1))
                put(inbox, a="a")
                await has(here, ("a.txt", "deleted", 1), ("a.txt", "created", 1))
                put(inbox, b="changes are not asked for")
                (inbox / "a.txt").unlink()
                await has(here, ("a.txt", "deleted", 1), ("a.txt", "created", 1), ("a.txt", "deleted", 1))

                async def is_forgotten() -> bool:
                    known = [json.loads(each.body)["path"] for each in await here.store.definitions("file:t")]
                    return known == [str(inbox / "b.txt")]

                await eventually(is_forgotten)

    asyncio.run(main())


def test_cursors_of_deleted_files_do_not_pile_up(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            put(inbox, a="a")
            async with going(here):
                await has(here, ("a.txt", "created", 1))
                (inbox / "a.txt").unlink()

                async def is_forgotten() -> bool:
                    return not await here.store.definitions("file:t")

                await eventually(is_forgotten)
            assert len(await here.runs()) == 1

    asyncio.run(main())


def test_a_file_is_reported_when_it_has_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later_us = 0
    monkeypatch.setattr(files, "monotonic_us", lambda: clock.monotonic_us() + later_us)

    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.05) as here:
            await here.triggers.declare(fast(inbox / "*.txt", settle=3600), "read", name="t")
            await here.triggers.declare(fast(inbox / "*.txt"), "glance", name="hasty")

            async def sizes(agent: str) -> list[int]:
                runs = await here.runs()
                found: list[Any] = await here.inputs()  # perhaps of more by now
                return [each["size"] for each, run in zip(found, runs, strict=False) if run.agent == agent]

            async with going(here):
                with (inbox / "a.txt").open("w") as file:
                    for number in range(1, 4):
                        file.write("x" * 10)
                        file.flush()
                        await eventually(lambda: sizes_have(sizes("glance"), number * 10))  # noqa: B023 - it is awaited here
                        assert await sizes("read") == []

                async def is_reported() -> list[int]:
                    nonlocal later_us
                    later_us += 3_600_000_000
                    return await sizes("read")

                assert await eventually(is_reported) == [30]

    asyncio.run(main())


async def sizes_have(sizes: Awaitable[list[int]], size: int) -> bool:
    return size in await sizes


def test_a_filter_is_asked_about_the_event(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t", where={"size": {"gt": 2}})
            put(inbox, small="s", large="large")
            async with going(here):
                await has(here, ("large.txt", "created", 5))
                put(inbox, small="not so small")
                await has(here, ("large.txt", "created", 5), ("small.txt", "changed", 12))
                await counted(here, received=3, matched=2, started=2)
            info = (await here.triggers.list())[0]
            assert sorted(note.what for note in info.recent) == ["ignored", "started", "started"]

    asyncio.run(main())


def test_relative_patterns_start_from_the_folder_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast("**/*.txt"), "read", name="t")
            monkeypatch.chdir("/")
            (inbox / "deep").mkdir()
            put(inbox / "deep", a="a")
            async with going(here):
                await has(here, ("a.txt", "created", 1))

    monkeypatch.chdir(tmp_path)
    asyncio.run(main())


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_a_file_whose_name_is_not_text_is_told_of_and_holds_up_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            Path(os.fsdecode(os.path.join(os.fsencode(inbox), b"\xff\xfe.txt"))).write_text("a")
            put(inbox, b="bb")
            with logged() as log:
                async with going(here):
                    await has(here, ("b.txt", "created", 2))
                    await eventually(lambda: has_noted(here, "refused"))
                    for name in ("c", "d"):  # it looks again and again
                        put(inbox, **{name: name})
                        await eventually(lambda: is_reported(here, f"{name}.txt"))  # noqa: B023 - it is awaited here
            assert len(log.named("trigger.refused_file")) == 1
            assert log.named("trigger.failed") == []

    asyncio.run(main())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_told_of_and_holds_up_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            put(inbox, secret="s")
            (inbox / "secret.txt").chmod(0)
            put(inbox, open="o")
            with logged() as log:
                async with going(here):
                    await has(here, ("open.txt", "created", 1))
            assert len(log.named("trigger.unreadable_file")) == 1

    asyncio.run(main())


def test_changes_are_found_without_news_and_with_a_folder_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(tmp_path / "later/*.txt"), "read", name="t")
            await here.triggers.declare(fast(tmp_path / "*.md"), "read", name="other")
            (tmp_path / "b.md").write_text("b")
            async with going(here):
                await has(here, ("b.md", "created", 1))
                (tmp_path / "later").mkdir()
                put(tmp_path / "later", a="a")
                await has(here, ("b.md", "created", 1), ("a.txt", "created", 1))

    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.delitem(sys.modules, "holdfast.automation.triggers.watching", raising=False)
    asyncio.run(main())


def test_news_make_it_fast(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=3600) as here:
            await here.triggers.declare(fast(inbox / "**/*.txt"), "read", name="t")
            put(inbox, first="f")
            (inbox / "deep").mkdir()
            async with going(here):
                await has(here, ("first.txt", "created", 1))  # the first scan is over; now only news can say it
                number = 0

                async def is_told() -> bool:
                    nonlocal number
                    number += 1
                    put(inbox / "deep", **{f"a{number}": "a"})  # whoever listens may have begun after the one before
                    return len(await here.runs()) > 1

                await eventually(is_told)

    asyncio.run(main())


# processes


def test_what_changes_while_nobody_is_there_is_found_later(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        put(inbox, a="a", b="b")
        source = fast(inbox / "*.txt", kinds=("created", "changed", "deleted"))
        async with world(tmp_path) as here:
            await here.triggers.declare(source, "read", name="t")
        put(inbox, a="aa", c="ccc")
        (inbox / "b.txt").unlink()
        async with world(tmp_path) as here:
            await here.triggers.declare(source, "read", name="t")
            async with going(here):
                await has(here, ("a.txt", "changed", 2), ("c.txt", "created", 3), ("b.txt", "deleted", 1))

    asyncio.run(main())


def test_several_workers_start_each_run_once(tmp_path: Path, forkserver: ForkServer) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.1) as one, world(tmp_path, rescan_s=0.1) as two:
            source = fast(inbox / "*.txt")
            await asyncio.gather(*(each.triggers.declare(source, "read", name="t") for each in (one, two)))
            expected: list[tuple[str, str, int]] = []
            async with going(one), going(two):
                with process(tmp_path, forkserver), process(tmp_path, forkserver):
                    for number in range(1, 6):
                        put(inbox, **{f"f{n}": f"{number}" * number for n in range(40)})
                        change = "created" if number == 1 else "changed"
                        expected += [(f"f{n}.txt", change, number) for n in range(40)]
                        await has(one, *expected)
            info = (await one.triggers.list())[0]
            assert info.received <= 200
            assert len(await one.runs()) == 200

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["", *(f"define.after_commit:kill@{n}" for n in (1, 2, 3))])
def test_a_process_killed_in_between_leaves_each_file_to_be_reported_once(
    tmp_path: Path, forkserver: ForkServer, fault: str
) -> None:
    """Killed right after a run is durable, after the cursors were moved, after they were settled, or counted."""

    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt", kinds=("created", "deleted")), "read", name="t")
            put(inbox, a="a", b="bb")
            with process(tmp_path, forkserver, kills=not fault, fault=fault) as killed:
                assert await killed.wait_dead() == -9
            put(inbox, c="ccc")
            with process(tmp_path, forkserver):
                await has(here, ("a.txt", "created", 1), ("b.txt", "created", 2), ("c.txt", "created", 3))
                await eventually(lambda: is_settled(here))
            assert len(await here.runs()) == 3

    asyncio.run(main())


def test_a_process_killed_after_a_deletion_was_reported_reports_it_once(tmp_path: Path, forkserver: ForkServer) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        put(inbox, a="a")
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt", kinds=("created", "deleted")), "read", name="t")
            (inbox / "a.txt").unlink()
            with process(tmp_path, forkserver, kills=True) as killed:
                assert await killed.wait_dead() == -9
            put(inbox, a="a")  # before the deletion is settled
            with process(tmp_path, forkserver):
                await has(here, ("a.txt", "deleted", 1), ("a.txt", "created", 1))

    asyncio.run(main())


async def is_settled(here: World) -> bool:
    return all(each.due_at is None for each in await here.store.definitions("file:t"))


def test_a_run_that_cannot_be_started_is_tried_again_and_the_change_before_goes_first(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.2) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            here.fails = StoreError("the disk is busy")
            with logged() as log:
                async with going(here):
                    put(inbox, a="a")
                    await eventually(lambda: has_noted(here, "failed"))
                    put(inbox, a="aa")
                    tries = len(here.starts)
                    await eventually(lambda: len(here.starts) > tries)
                    here.fails = None
                    await has(here, ("a.txt", "created", 1), ("a.txt", "changed", 2))
                    await counted(here, received=2, matched=2, started=2)
            assert await reported(here) == [("a.txt", "created", 1), ("a.txt", "changed", 2)]
            assert log.named("trigger.start_failed")

    asyncio.run(main())


async def is_reported(here: World, name: str) -> bool:
    return name in [each for each, _, _ in await reported(here)]


def test_triggers_are_paused_resumed_and_removed_while_they_go(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path, rescan_s=0.1) as here, world(tmp_path) as other:

            async def is_noticed(kind: str) -> None:
                """A trigger that was declared after what came before has found two files, one after the other."""
                await other.triggers.declare(fast(inbox / f"*.{kind}"), "read", name=kind)
                for name in (f"first.{kind}", f"second.{kind}"):
                    (inbox / name).write_text(name)
                    await eventually(lambda: is_reported(here, name))  # noqa: B023 - it is awaited here

            async with going(here):
                await other.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
                put(inbox, a="a")
                await has(here, ("a.txt", "created", 1))
                await other.triggers.pause("t")
                await is_noticed("one")
                put(inbox, b="b")
                await is_noticed("two")
                assert not await is_reported(here, "b.txt")
                await other.triggers.resume("t")
                await eventually(lambda: is_reported(here, "b.txt"))
                await here.triggers.remove("t")
                await is_noticed("three")
                put(inbox, c="c")
                await is_noticed("four")
                assert not await is_reported(here, "c.txt")
            assert await here.store.definitions("file:t") == []

    asyncio.run(main())


def test_another_pattern_under_the_same_name_takes_what_is_there_as_known(tmp_path: Path) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        put(inbox, a="a")
        (inbox / "b.md").write_text("b")
        kinds = ("created", "changed", "deleted")
        async with world(tmp_path, rescan_s=0.1) as here:
            await here.triggers.declare(fast(inbox / "*.txt", kinds=kinds), "read", name="t")
            await here.triggers.declare(fast(inbox / "*.md", kinds=kinds), "read", name="t")
            async with going(here):
                (inbox / "b.md").write_text("bb")
                await has(here, ("b.md", "changed", 2))

    asyncio.run(main())


@pytest.mark.parametrize("count", [4_000, pytest.param(20_000, marks=pytest.mark.prove)])
def test_many_files_are_no_problem_for_the_loop(tmp_path: Path, count: int) -> None:
    async def main() -> None:
        inbox = inbox_of(tmp_path)
        for number in range(count):
            folder = inbox / f"{number % 100}"
            folder.mkdir(exist_ok=True)
            (folder / f"{number}.txt").write_text(f"{number}")
        async with world(tmp_path, rescan_s=0.5) as here:
            turns: list[float] = []
            with_turns = asyncio.create_task(measure(turns))
            await here.triggers.declare(fast(inbox / "**/*.txt"), "read", name="t")
            assert len(await here.store.definitions("file:t", limit=100_000)) == count
            async with going(here):
                (inbox / "7" / "7.txt").write_text("another")
                put(inbox / "8", new="new")
                await has(here, ("7.txt", "changed", 7), ("new.txt", "created", 3))
            with_turns.cancel()
            assert max(turns) < 1.0, sorted(turns)[-5:]

    asyncio.run(main())


async def measure(turns: list[float]) -> None:
    """How much the thread of the loop computes before it lets others have a turn, however busy the machine is."""
    while True:
        began = time.thread_time()
        await asyncio.sleep(0.005)
        turns.append(time.thread_time() - began)


def test_many_new_files_start_many_runs(tmp_path: Path) -> None:
    async def main(made: Callable[[Path], None]) -> None:
        inbox = inbox_of(tmp_path)
        async with world(tmp_path) as here:
            await here.triggers.declare(fast(inbox / "*.txt"), "read", name="t")
            made(inbox)
            async with going(here):
                await eventually(lambda: has_runs(here, 1_000))
                await counted(here, received=1_000, matched=1_000, started=1_000)
            assert len({start.run_id for start in here.starts}) == 1_000

    asyncio.run(main(lambda inbox: put(inbox, **{f"f{number}": "same" for number in range(1_000)})))


async def has_runs(here: World, count: int) -> bool:
    return len(await here.runs()) == count
