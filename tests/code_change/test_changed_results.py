"""What a step has returned is read by code whose class has other fields: their defaults, or the run is blocked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing.child import load
from tests.workers import asked, until

CODE = """
import dataclasses
import pydantic
import holdfast as hf

BODIES = []


{header}
class Page{base}:
{fields}


@hf.step
async def find() -> Page:
    BODIES.append("find")
    return Page({given})


@hf.step
async def use(text: str) -> str:
    BODIES.append("use")
    return text


@hf.agent
async def reads() -> str:
    page = await find()
    await hf.ask("Shall I go on?")
    return await use(repr(page))
"""
KINDS = {"dataclass": ("@dataclasses.dataclass", ""), "model": ("", "(pydantic.BaseModel)")}
#: The fields of the class by then, and how the run goes on: with this value, or blocked, since there is no such field.
CHANGES = {
    "added, with a default": (["title: str", "size: int", "tags: tuple[str, ...] = ()"], "title='t', size=1, tags=()"),
    "removed": (["title: str"], "title='t'"),
    "added, needed": (["title: str", "size: int", "author: str"], "author"),
    "of another type": (["title: str", "size: dict[str, int]"], "size"),
}


def module(folder: Path, name: str, kind: str, fields: list[str]) -> dict[str, object]:
    header, base = KINDS[kind]
    path = folder / f"{name}.py"
    lines = "\n".join(f"    {field}" for field in fields)
    path.write_text(CODE.format(header=header, base=base, fields=lines, given="title='t', size=1"))
    return vars(load(str(path)))


ALWAYS = {("dataclass", "added, with a default"), ("model", "added, needed")}
CASES = [
    pytest.param(kind, change, marks=() if (kind, change) in ALWAYS else pytest.mark.prove)
    for kind in KINDS
    for change in CHANGES
]


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_a_result_is_read_with_the_fields_of_the_new_code_or_the_run_is_blocked(
    kind: str, change: str, tmp_path: Path
) -> None:
    fields, expected = CHANGES[change]
    is_blocked = " " not in expected and "=" not in expected
    old = module(tmp_path, "old", kind, ["title: str", "size: int"])
    new = module(tmp_path, "new", kind, fields)
    store = tmp_path / "store.db"

    async def first() -> None:
        async with hf.connect(store, agents=[old["reads"]]) as app:  # type: ignore[list-item]
            run = await app.start(old["reads"](), id="run")  # type: ignore[operator]
            await asked(run)
            await until(run, "waiting")

    async def then() -> None:
        async with hf.connect(store, agents=[new["reads"]]) as app:  # type: ignore[list-item]
            run = app.get("run")
            (question,) = await run.questions()
            await question.answer(True)
            if is_blocked:
                await until(run, "blocked")
                reason = (await run.info()).reason or {}
                assert reason["why"] == "result does not fit"
                assert expected in str(reason["detail"])
                assert new["BODIES"] == []
            else:
                assert await run.result(timeout=60) == f"Page({expected})"
                assert new["BODIES"] == ["use"]

    asyncio.run(first())
    assert old["BODIES"] == ["find"]
    asyncio.run(then())
