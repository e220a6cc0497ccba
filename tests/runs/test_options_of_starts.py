"""What a run is started with: its tags, the time of its schedule, and what `hf.start` takes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast as hf
from tests.eventually import eventually

MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
STARTED: list[str] = []


@hf.step
async def note(name: str) -> None:
    STARTED.append(name)


@hf.agent
async def tagged() -> dict[str, str]:
    before = dict(hf.this_run().tags)
    await hf.receive(("go", str))
    assert hf.this_run().tags == before
    return before


@hf.agent
async def nightly() -> str:
    at = hf.this_run().scheduled_at
    return "by hand" if at is None else at.isoformat()


@hf.agent
async def leaf(text: str) -> tuple[str, dict[str, str]]:
    await note(text)
    return text, dict(hf.this_run().tags)


@hf.agent
async def starts() -> list[str]:
    one = await hf.start(leaf("one"), id="one", thread_id="other", tags={"kind": "side"})
    two = await hf.start(leaf("two"), queue="slow", queue_key="k", priority=3, delay=timedelta(days=1))
    again = await hf.start(leaf("one"), id="one")
    refusal = ""
    try:
        await hf.start(leaf("another"), id="one")
    except hf.ConflictingStart as error:
        refusal = str(error)
    await hf.receive(("go", str))
    return [one.token, two.id, again.id, refusal]


async def is_waiting(run: hf.Run[object]) -> bool:
    return await run.status() is hf.Status.waiting


def test_a_run_knows_its_tags_and_so_does_whoever_looks(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "s.db", agents=tagged) as app:
            run = await app.start(tagged(), id="r", tags={"customer": "7", "kind": "räksmörgås = ok"})
            await eventually(lambda: is_waiting(run))
            given = {"customer": "7", "kind": "räksmörgås = ok"}
            assert (await run.info()).tags == given
            assert [each.tags for each in await app.runs()] == [given]
            assert (await run.info()).as_dict()["tags"] == given
        async with hf.connect(tmp_path / "s.db", agents=tagged) as app:
            await app.get("r").send("go", "on")
            assert await app.get("r").result(timeout=60) == given
            assert (await app.get("r").info()).tags == given
            assert [each.id for each in await app.runs(tags={"customer": "7"}, agent="tagged")] == ["r"]
            assert await app.runs(tags={"customer": "7", "kind": "other"}) == []
            plain = await app.start(tagged(), id="plain")
            assert (await plain.info()).tags == {}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("tags", "refusal"),
    [
        ({"": "x"}, "tags= takes names without '='; got ''."),
        ({"a=b": "x"}, "tags= takes names without '='; got 'a=b'."),
        ({"a": 1}, "tags= takes texts of at most 200 printable characters; got 'a': 1."),
        ({"a": "x\n"}, "tags= takes texts of at most 200 printable characters; got 'a': 'x\\n'."),
        ({str(n): "" for n in range(51)}, "tags= takes at most 50; got 51."),
    ],
    ids=["no name", "equals", "no text", "not printable", "many"],
)
def test_tags_that_could_not_be_found_again_are_refused(tmp_path: Path, tags: dict[str, str], refusal: str) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "s.db", agents=tagged) as app:
            with pytest.raises(hf.UsageError) as caught:
                await app.start(tagged(), tags=tags)
            assert str(caught.value) == refusal

    asyncio.run(main())


def test_a_backfilled_run_knows_the_time_that_it_is_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with hf.connect(tmp_path / "s.db", agents=nightly) as app:
            await app.schedule("nightly", nightly(), cron="0 2 * * *")
            runs = await app.backfill_schedule("nightly", MONDAY - timedelta(days=7000), MONDAY - timedelta(days=6998))
            assert [await run.result(timeout=60) for run in runs] == [
                "2010-11-08T02:00:00+00:00",
                "2010-11-09T02:00:00+00:00",
            ]
            info = await runs[0].info()
            assert info.scheduled_at == datetime(2010, 11, 8, 2, tzinfo=UTC)
            assert info.tags["schedule"] == "nightly"
            by_hand = await app.start(nightly(), tags={"instant": "20101108T020000Z"})
            assert await by_hand.result() == "by hand"

    asyncio.run(main())


def test_a_run_starts_others_with_all_that_an_app_can_say(tmp_path: Path) -> None:
    STARTED.clear()

    async def main() -> None:
        async with hf.connect(tmp_path / "s.db", agents=[starts, leaf]) as app:
            run = await app.start(starts(), id="r")
            await eventually(lambda: is_waiting(run))
            assert await app.get("one", leaf).result(timeout=60) == ("one", {"kind": "side"})
        async with hf.connect(tmp_path / "s.db", agents=[starts, leaf]) as app:
            await app.get("r").send("go", "on")
            token, two, again, refusal = await app.get("r", starts).result(timeout=60)
            assert (token, again) == ("one@other", "one")
            assert refusal == "Run one (leaf) exists with other arguments. Use another id, or the same arguments."
            assert [each.id for each in await app.runs(queue="slow")] == [two]
            assert (await app.get(two).status()) is hf.Status.queued
            row = await app._here.store.run(two)  # type: ignore[arg-type]
            assert row is not None
            assert (row.queue_key, row.priority, row.parent_id) == ("k", 3, "r")
            assert row.wake_at is not None
            assert timedelta(microseconds=row.wake_at - row.created_at) > timedelta(hours=23)

    asyncio.run(main())
    assert STARTED == ["one"]
