"""A run with turns goes on after each of its records as if it had never stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.model import Kind, NoteKind, Record
from holdfast.testing import check_history
from holdfast.testing.ledger import VARIABLE
from holdfast.testing.postgres import Databases
from holdfast.testing.reading import read_run
from holdfast.testing.survival import FOLDER
from tests.crash.agents import World
from tests.eventually import eventually
from tests.turns import loops
from tests.turns.cutting import cut_at, put_elsewhere, worlds_at
from tests.turns.later import changed

RUN = "r"

CASES: dict[str, tuple[hf.Call[Any], list[tuple[Any, Any]]]] = {
    "effects": (loops.effects_at_both_ends(0), []),
    "caught": (loops.caught(0), []),
    "gathers": (loops.gathers(0), []),
    "awaits later": (loops.awaits_later(0), []),
    "listens": (loops.listens(0), [(loops.word, "a"), (loops.other, 5), (loops.other, 6), (loops.word, "last")]),
    "takes back": (loops.takes_back(1), []),
    "is retried": (loops.is_retried(0), []),
    "keeps files": (loops.keeps_files(0), []),
    "is told": (loops.is_told(0), []),
    "reducer": (loops.total(0), [("event", 3), ("event", 4), ("event", 0)]),
}
FIRST = ("effects", "listens")
PROVED = [n if n in FIRST else pytest.param(n, marks=pytest.mark.prove) for n in CASES]
STORES = pytest.mark.parametrize("store", ["sqlite", "postgresql"])
AGENTS = [loops.child, *(call.agent for call, _ in CASES.values())]

Deed = Callable[[hf.Run[Any]], Awaitable[object]]
Outcome = tuple[Any, list[tuple[str, object, str]]]
BLOCKED = "blocked"


async def nothing(run: hf.Run[Any]) -> None:
    pass


async def interrupt(run: hf.Run[Any]) -> None:
    with contextlib.suppress(hf.RunFinished):  # it may be over by then
        assert await run.interrupt("well?") == "well? True"


async def pause(run: hf.Run[Any]) -> None:
    await run.pause()
    await run.resume()


class PrefixLives:
    """Lives of one program: the whole one, and those that begin with a part of its journal."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, databases: Databases | None = None) -> None:
        self.whole = folder / "whole" / "store.db"
        self.whole.parent.mkdir()
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._databases = databases

    def first(self, name: str) -> Outcome:
        return self.live(str(self.whole), self.whole.parent, *CASES[name])

    def live(
        self, url: str, folder: Path, call: hf.Call[Any], said: list[tuple[Any, Any]], deed: Deed = nothing
    ) -> Outcome:
        """How it ends, and what happened outside, each once."""
        self._monkeypatch.setenv(FOLDER, str(folder))
        self._monkeypatch.setenv(VARIABLE, str(folder / "ledger.jsonl"))

        async def go() -> Any:
            async with hf.connect(url, agents=[call.agent, *AGENTS]) as app:
                run = await app.start(call, id=RUN)
                for number, (signal, value) in enumerate(said):
                    await run.send(signal, value, dedup=f"said-{number}")
                await deed(run)
                try:
                    return await run.result(timeout=60)
                except hf.RunCancelled:
                    return None
                except hf.RunBlocked:
                    return BLOCKED
                except hf.RunFailed:
                    (folder / "mended").touch()
                    await run.retry()
                    return await run.result(timeout=60)

        result = asyncio.run(go())
        return result, list(dict.fromkeys(World(folder).deeds()))

    def again(self, name: str, seq: int, deed: Deed = nothing) -> list[Outcome]:
        """The lives that begin with so many records: an effect that was under way has happened, or has not."""
        return self.anew(*CASES[name], seq, deed)

    def anew(self, call: hf.Call[Any], said: list[tuple[Any, Any]], seq: int, deed: Deed = nothing) -> list[Outcome]:
        """The same with other code."""
        found: list[Outcome] = []
        _, records = read_run(str(self.whole), RUN)
        for number, world in enumerate(worlds_at(self.whole.parent, records, seq=seq)):
            cut = self._folder / f"{seq}-{number}" / "store.db"
            cut_at(self.whole, cut, RUN, seq=seq)
            World(cut.parent).path.write_text("".join(f"{line}\n" for line in world))
            url = str(cut)
            if self._databases is not None:
                url = self._databases.fresh()
                asyncio.run(put_elsewhere(cut, url))
            found.append(self.live(url, cut.parent, call, said, deed))
            assert list(check_history(url)) == [], f"after record {seq}, {number}"
        return found


def check_each(lives: PrefixLives, name: str, deed: Deed = nothing) -> None:
    expected = lives.first(name)
    row, records = read_run(str(lives.whole), RUN)
    assert row.turn >= 2
    for seq in range(2, len(records)):
        if records[seq - 1].name == NoteKind.workspace:
            continue  # its outcome is in the same append
        for found in lives.again(name, seq, deed):
            assert found == expected, f"after record {seq} ({records[seq - 1]})"


@pytest.mark.parametrize("name", PROVED)
def test_a_run_goes_on_after_each_record_as_if_it_had_never_stopped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_each(PrefixLives(tmp_path, monkeypatch), name)


@pytest.mark.prove
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CASES)
def test_so_it_does_on_postgresql(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_databases: Databases
) -> None:
    check_each(PrefixLives(tmp_path, monkeypatch, postgres_databases), name)


# what people do to it, wherever it is; the head of a turn too


@pytest.fixture
def lives(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> PrefixLives:
    return PrefixLives(
        tmp_path, monkeypatch, request.getfixturevalue("postgres_databases") if store == "postgresql" else None
    )


@pytest.mark.prove
@pytest.mark.timeout(0)
@STORES
@pytest.mark.parametrize("deed", [interrupt, pause])
def test_who_interrupts_or_pauses_it_changes_nothing(deed: Deed, lives: PrefixLives) -> None:
    check_each(lives, "is told", deed)


@pytest.mark.prove
@pytest.mark.timeout(0)
@STORES
def test_who_cancels_it_has_it_clean_up_once(lives: PrefixLives) -> None:
    _, whole = lives.first("is told")
    for seq in range(2, len(read_run(str(lives.whole), RUN)[1])):
        for result, acts in lives.again("is told", seq, lambda run: run.cancel()):
            values = [value for _, value, _ in acts]
            assert result is None or values == [value for _, value, _ in whole], "it was over before"
            posted = [value for value in values if value != 99]
            assert posted == [*range(len(posted))], (seq, values)
            assert values.count(99) <= 1


# other code


WORDS: list[tuple[Any, Any]] = [(loops.word, each) for each in ("a", "b", "c", "d")]
#: How the code is another one from the second turn on, and what happens outside then.
CODE: dict[str, list[int]] = {
    "patch in the loop": [900, 1, 702, 2, 703, 3, 704, 4],
    "patch before the loop": [900, 1, 2, 3, 4],  # that is over
    "patch in both": [900, 1, 702, 2, 703, 3, 704, 4],
    "effect removed": [900, 1, 2, 3, 4],
    "field added": [900, 1, 2, 3, 4],
    "field removed": [900, 1, 2, 3, 4],
    "field renamed": [900, 1, 2, 3, 4],
}


@pytest.fixture
def begun(lives: PrefixLives, monkeypatch: pytest.MonkeyPatch) -> PrefixLives:
    """The old code has come to its second turn."""

    async def begin() -> None:
        async with hf.connect(str(lives.whole), agents=[loops.changes]) as app:
            run = await app.start(loops.changes(0), id=RUN)
            await run.send(loops.word, "a", dedup="said-0")

            async def is_in_turn_two() -> bool:
                info = await run.info()
                return info.status is hf.Status.waiting and read_run(str(lives.whole), RUN)[0].turn == 2

            await eventually(is_in_turn_two)

    monkeypatch.setenv(FOLDER, str(lives.whole.parent))
    monkeypatch.setenv(VARIABLE, str(lives.whole.parent / "ledger.jsonl"))
    asyncio.run(begin())
    return lives


def first_turn(records: list[Record]) -> int:
    return next(record.seq for record in records if record.kind == Kind.checkpoint)


@pytest.mark.prove
@pytest.mark.timeout(0)
@STORES
@pytest.mark.parametrize("code", CODE)
def test_other_code_goes_on_after_each_record_as_if_it_had_never_stopped(code: str, begun: PrefixLives) -> None:
    old = read_run(str(begun.whole), RUN)[1]
    call = changed(code)(0)
    expected = begun.live(str(begun.whole), begun.whole.parent, call, WORDS)
    assert expected[0] == ["a", "b", "c", "d"]
    assert [value for _, value, _ in expected[1]] == CODE[code], "nothing but its wait was recorded of the second turn"
    # A patch is taken in the first turn, too, if the code is changed there.
    begin = len(old) if "patch in" in code else first_turn(old)
    for seq in range(begin, len(read_run(str(begun.whole), RUN)[1])):
        for found in begun.anew(call, WORDS, seq):
            assert found == expected, f"after record {seq}"


@pytest.mark.prove
@pytest.mark.timeout(0)
@STORES
@pytest.mark.parametrize("code", ["effect moved", "effect added", "not migrated"])
def test_other_code_that_does_not_fit_blocks_after_each_record_and_does_nothing(code: str, begun: PrefixLives) -> None:
    old = read_run(str(begun.whole), RUN)[1]
    for seq in range(first_turn(old), len(old) + 1):
        for result, acts in begun.anew(changed(code)(0), WORDS, seq):
            assert result == BLOCKED, f"after record {seq}"
            assert [value for _, value, _ in acts] in ([900], [900, 1]), f"after record {seq}"
            assert len(acts) == 1 or seq > first_turn(old) + 1
