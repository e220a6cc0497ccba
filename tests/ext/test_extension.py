"""What an extension keeps in the store of the runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.app.extensions import Extension
from holdfast.errors import UsageError
from holdfast.testing.processes import environment


def test_documents_are_added_once_swapped_by_revision_and_removed(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url) as app:
            memory = app.extension("memory")
            assert await memory.add("ada", {"1": '"one"', "2": '"two"'}) == {"1", "2"}
            assert await memory.add("ada", {"2": '"other"', "3": '"three"'}) == {"3"}
            assert [each.text for each in await memory.read("ada")] == ['"one"', '"two"', '"three"']
            assert await memory.swap("ada", "1", '"new"', revision=1)
            assert not await memory.swap("ada", "1", '"late"', revision=1)
            assert not await memory.swap("ada", "1", '"late"', revision=0)
            await memory.put("ada", "1", '"last"')
            found = await memory.get("ada", "1")
            assert found is not None
            assert (found.text, found.revision) == ('"last"', 3)
            await memory.remove("ada", ["2"])
            assert [each.key for each in await memory.read("ada")] == ["1", "3"]
            assert await memory.spaces() == ["ada"]
            assert await app.extension("other").read("ada") == []
            await memory.remove("ada")
            assert await memory.read("ada") == []
            assert await memory.spaces() == []

    asyncio.run(main())


def test_of_two_who_have_read_the_same_one_is_refused(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url) as first, hf.connect(url) as second:
            swaps = [app.extension("memory").swap("ada", "head", "1", revision=0) for app in (first, second)]
            assert sorted(await asyncio.gather(*swaps)) == [False, True]

    asyncio.run(main())


def test_a_head_advances_with_others_or_nothing_is_changed(url: str) -> None:
    async def main() -> None:
        async with hf.connect(url) as app:
            memory = app.extension("memory")
            others = {"ada": {"1": ('"one"', 0)}, "bo": {"1": ('"bo"', 0)}}
            assert await memory.advance("heads", "ada", "1", revision=0, others=others)
            assert await memory.spaces() == ["ada", "bo", "heads"]
            assert not await memory.advance("heads", "ada", "2", revision=0, others={"ada": {"2": ('"late"', 0)}})
            others = {"ada": {"1": ('"new"', 1), "2": ('"two"', 0)}, "bo": {"1": ('"other"', 0)}}
            assert await memory.advance("heads", "ada", "2", revision=1, others=others)
            assert [each.text for each in await memory.read("ada")] == ['"new"', '"two"']
            assert [each.text for each in await memory.read("bo")] == ['"bo"']

    asyncio.run(main())


def test_numbered_steps_are_done_once_and_in_order(url: str) -> None:
    done: list[int] = []

    def step(number: int) -> object:
        async def migrate(extension: Extension) -> None:
            done.append(number)

        return migrate

    async def main() -> None:
        async with hf.connect(url) as app:
            memory = app.extension("memory")
            assert await memory.migrate({2: step(2), 1: step(1)}) == 2  # type: ignore[dict-item]
            assert await memory.migrate({1: step(1), 2: step(2), 3: step(3)}) == 3  # type: ignore[dict-item]

    asyncio.run(main())
    assert done == [1, 2, 3]


def test_a_blocking_call_on_the_thread_of_the_loop_is_refused_and_in_another_thread_it_is_answered(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with hf.connect(str(tmp_path / "runs.db")) as app:
            memory = app.extension("memory")
            await memory.add("ada", {"1": "1"})
            with pytest.raises(UsageError, match="thread of the app's event loop"):
                memory.from_thread(memory.read("ada"))
            found = await asyncio.to_thread(lambda: memory.from_thread(memory.read("ada")))
            assert [each.key for each in found] == ["1"]
            with pytest.raises(UsageError, match="cannot be a name"):
                app.extension("")

    asyncio.run(main())


def test_copy_takes_the_documents_and_doctor_names_the_extensions(tmp_path: Path, postgres_url: str) -> None:
    source, target = str(tmp_path / "runs.db"), postgres_url

    async def fill() -> None:
        async with hf.connect(source) as app:
            await app.extension("memory").add("ada", {str(number): "0" for number in range(450)})

    def holdfast(*words: str) -> str:
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment({}), check=True).stdout

    async def look() -> None:
        async with hf.connect(target) as app:
            memory = app.extension("memory")
            assert len(await memory.read("ada")) == 450
            assert await memory.spaces() == ["ada"]

    asyncio.run(fill())
    assert "memory (1 space)" in holdfast("doctor", "--db", source)
    assert "extension" in holdfast("copy", source, target, "--definitions")
    asyncio.run(look())
    assert "there" in holdfast("copy", source, target, "--definitions")
