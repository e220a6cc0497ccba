"""A run is resumed with other code: it goes on, or it is blocked and says why; no completed effect happens again."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.base.config import Settings
from tests.code_change import variants
from tests.code_change.ledger import orders, pauses, ran
from tests.concurrency.crashes import RUN, Ended, cut, ended_of, run_here

SEQUENCE = """
    a = await look(1)
    b = await pay(10)
    c = await look(2)
    d = await mail("x")
    return [a, b, c, d, await look(3)]
"""
LOOP = """
    return [await pay(n) for n in (1, 2, 3)]
"""
BRANCHES = """
    return await asyncio.gather(buy(1), buy(2))
"""

#: Where the old code is cut off: (kind, key) of the last record on disk.
IN_SEQUENCE = {
    "nothing done": ("done", "look#1"),
    "paying": ("intent", "pay#1"),
    "paid": ("done", "pay#1"),
    "mailing": ("intent", "mail#1"),
    "mailed": ("done", "mail#1"),
    "at the end": ("done", "look#3"),
}
ALL = frozenset(IN_SEQUENCE)
#: The others are tried by `make prove`.
ALWAYS = frozenset({"nothing done", "paying", "mailed"})

#: The new code, and the places from which it can go on; from the others the run is blocked.
CHANGED_SEQUENCE = {
    "step inserted": (SEQUENCE.replace("b = await pay", "await look(9)\n    b = await pay"), ALL),
    "step inserted first": ("    await look(9)\n" + SEQUENCE.lstrip("\n"), ALL),
    "step removed": (SEQUENCE.replace("c = await look(2)", "c = 2.0"), ALL),
    "step renamed": (SEQUENCE.replace("look(2)", "look_elsewhere(2)"), ALL),
    "steps reordered": (
        SEQUENCE.replace("    c = await look(2)\n", "").replace("    b =", "    c = await look(2)\n    b ="),
        ALL,
    ),
    "step's argument changed": (SEQUENCE.replace("look(2)", "look(22)"), ALL),
    "step became branches": (
        SEQUENCE.replace("c = await look(2)", "c, _ = await asyncio.gather(look(2), look(4))"),
        ALL,
    ),
    "effect inserted first": (SEQUENCE.replace("b =", "await gift()\n    b ="), {"nothing done"}),
    "effect inserted between": (SEQUENCE.replace("c =", "await gift()\n    c ="), {"nothing done", "paying", "paid"}),
    "effect inserted last": (SEQUENCE.replace("return", "await gift()\n    return"), ALL),
    "effect removed": (
        SEQUENCE.replace("await pay(10)", '"paid 10"'),
        {"nothing done", "mailing", "mailed", "at the end"},
    ),
    "last effect removed": (SEQUENCE.replace('await mail("x")', '"no"'), ALL - {"mailing"}),
    "effect renamed": (SEQUENCE.replace("pay(10)", "charge(10)"), {"nothing done"}),
    "effect's argument changed": (SEQUENCE.replace("pay(10)", "pay(11)"), {"nothing done"}),
    "effects reordered": (
        SEQUENCE.replace('    d = await mail("x")\n', "").replace("    b =", '    d = await mail("x")\n    b ='),
        {"nothing done", "mailing", "mailed", "at the end"},
    ),
    "effect became a branch": (
        SEQUENCE.replace("b = await pay(10)", "b = await asyncio.create_task(purchase(10))"),
        {"nothing done"},
    ),
    "only the layout changed": ("# a comment\n" + SEQUENCE.replace("a = await look(1)", "a = (await look(1))"), ALL),
}
IN_LOOP = {"first paying": ("intent", "pay#1"), "first paid": ("done", "pay#1"), "second paying": ("intent", "pay#2")}
CHANGED_LOOP = {
    "loop became calls": ("return await asyncio.gather(*(pay(n) for n in (1, 2, 3)))", frozenset(IN_LOOP)),
    "loop became branches": ("return await asyncio.gather(*(purchase(n) for n in (1, 2, 3)))", frozenset[str]()),
    "loop became longer": ("return [await pay(n) for n in (1, 2, 3, 4)]", frozenset(IN_LOOP)),
    "loop runs the other way": ("return [await pay(n) for n in (3, 2, 1)]", frozenset[str]()),
}
IN_BRANCHES = {
    "one paying": ("intent", "buy~1/pay#1"),
    "one paid": ("done", "buy~1/pay#1"),
    "both paid": ("done", "buy~2/pay#1"),
}
CHANGED_BRANCHES = {
    "branch renamed": ("return await asyncio.gather(purchase(1), purchase(2))", frozenset[str]()),
    "one branch renamed": ("return await asyncio.gather(purchase(1), buy(2))", frozenset[str]()),
    "branch added": ("return await asyncio.gather(buy(1), buy(2), purchase(3))", frozenset(IN_BRANCHES)),
    "branches became a loop": ("return [await buy(n) for n in (1, 2)]", frozenset[str]()),
    "group instead of gather": (
        "async with asyncio.TaskGroup() as group:\n"
        "    tasks = [group.create_task(buy(n)) for n in (1, 2)]\n"
        "return [task.result() for task in tasks]",
        frozenset(IN_BRANCHES),
    ),
}


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()
    pauses.clear()


class Resumed:
    """The end of an execution: a result, or why there is none."""

    def __init__(self, result: object, blocked: hf.RunBlocked | None, ended: Ended) -> None:
        self.result = result
        self.blocked = blocked
        self.ended = ended


async def _go_on(store: Path, agent: hf.Agent[[], object]) -> Resumed:
    async with hf.connect(str(store), agents=[agent], settings=Settings(sweep_s=60)) as app:
        run = await app.start(agent(), id=RUN)
        await run.resume()
        result, blocked = None, None
        try:
            result = await run.result(timeout=60)
        except hf.RunBlocked as error:
            blocked = error
        return Resumed(result, blocked, await ended_of(app, result))


def go_on(store: Path, agent: hf.Agent[[], object]) -> Resumed:
    return asyncio.run(_go_on(store, agent))


def crashed(folder: Path, body: str, place: tuple[str, str]) -> tuple[hf.Agent[[], object], Ended, Path]:
    """The old code, how it ends, and a store in which it was cut off."""
    old = variants.load(folder, "old_code", body)
    ended = run_here(folder / "whole" / "holdfast.db", old())
    last = next(r.seq for r in ended.records if (r.kind, r.key) == place)
    store = cut(ended, last, folder / "cut" / "holdfast.db")
    ran.clear()
    return old, ended, store


def check(folder: Path, old_body: str, new_body: str, place: tuple[str, str], goes_on: bool) -> None:
    old, ended, store = crashed(folder, old_body, place)
    last = next(r.seq for r in ended.records if (r.kind, r.key) == place)
    done = [r for r in ended.records[:last] if r.kind == "done" and not r.key.rpartition("/")[2].startswith("look")]
    completed = {f"{r.name} {(r.payload or '').strip(chr(34)).partition(' ')[2]}" for r in done}
    new = variants.load(folder, "new_code", new_body)
    resumed = go_on(store, new)
    assert not completed & set(ran), "a completed effect happened again"
    if goes_on:
        assert resumed.blocked is None, resumed.blocked
        effects = Counter(each for each in ran if not each.startswith(("look", "see")))
        assert set(effects.values()) <= {1}
        return
    assert resumed.blocked is not None, resumed.result
    assert not [each for each in ran if not each.startswith(("look", "see"))], "nothing was executed"
    reason = resumed.blocked.reason
    assert reason["why"] == "replay mismatch"
    assert reason["recorded"]
    assert all({"key", "seq", "name"} <= set(each) for each in reason["recorded"])
    listed = "\n".join([*reason["attempted"], reason["where"]])
    assert re.search(r"new_code\.py:\d+", listed), listed
    assert "the end of the run" in reason["asked"] or re.search(r"new_code\.py:\d+", reason["where"])
    again = go_on(store, old)
    assert again.blocked is None, "going back to the old code helps"
    assert again.result == ended.result
    assert not completed & set(ran)


@pytest.mark.parametrize("change", CHANGED_SEQUENCE)
@pytest.mark.parametrize(
    "place", [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.prove) for each in IN_SEQUENCE]
)
def test_a_changed_sequence_goes_on_or_is_blocked(tmp_path: Path, change: str, place: str) -> None:
    body, goes_on = CHANGED_SEQUENCE[change]
    check(tmp_path, SEQUENCE, body, IN_SEQUENCE[place], place in goes_on)


@pytest.mark.parametrize("change", CHANGED_LOOP)
@pytest.mark.parametrize("place", IN_LOOP)
def test_a_changed_loop_goes_on_or_is_blocked(tmp_path: Path, change: str, place: str) -> None:
    body, goes_on = CHANGED_LOOP[change]
    check(tmp_path, LOOP, body, IN_LOOP[place], place in goes_on)


@pytest.mark.parametrize("change", CHANGED_BRANCHES)
@pytest.mark.parametrize("place", IN_BRANCHES)
def test_changed_branches_go_on_or_are_blocked(tmp_path: Path, change: str, place: str) -> None:
    body, goes_on = CHANGED_BRANCHES[change]
    check(tmp_path, BRANCHES, body, IN_BRANCHES[place], place in goes_on)


def test_a_removed_branch_whose_effect_happened_blocks_only_a_new_effect(tmp_path: Path) -> None:
    body = "return [await asyncio.create_task(buy(1))]"
    _, _, store = crashed(tmp_path / "both", BRANCHES, ("done", "buy~2/pay#1"))
    assert go_on(store, variants.load(tmp_path / "both", "new_code", body)).result == ["paid 1"]


@pytest.mark.parametrize("place", IN_SEQUENCE)
def test_functions_may_move_to_another_module(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ended, store = crashed(tmp_path, SEQUENCE, IN_SEQUENCE[place])
    tools = tmp_path / "shop_tools.py"
    tools.write_text(variants.HEAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    new = variants.load(
        tmp_path, "new_code", SEQUENCE, head="import holdfast as hf\nfrom shop_tools import look, mail, pay\n"
    )
    resumed = go_on(store, new)
    assert resumed.result == ended.result
    assert len(resumed.ended.keys()) == len(set(resumed.ended.keys()))


def test_a_blocked_run_goes_on_with_patched(tmp_path: Path) -> None:
    body = SEQUENCE.replace("b =", 'if hf.patched("gift"):\n        await gift()\n    b =')
    for place in IN_SEQUENCE:
        ran.clear()
        _, ended, store = crashed(tmp_path / place.replace(" ", "-"), SEQUENCE, IN_SEQUENCE[place])
        new = variants.load(tmp_path / place.replace(" ", "-"), "new_code", body)
        resumed = go_on(store, new)
        assert resumed.result == ended.result
        assert ("gift" in ran) == (place == "nothing done")


def test_branches_of_one_run_agree_about_a_patch(tmp_path: Path) -> None:
    old_body = """
        async def item(n: int) -> str:
            await look(n)
            await asyncio.sleep(pauses.get(n, 0))
            return await pay(n)
        return await asyncio.gather(item(1), item(2))
    """
    fixed = old_body.replace(
        "return await pay", 'if hf.patched("gift"):\n                await gift()\n            return await pay'
    )
    pauses[1] = 0.05
    _, ended, store = crashed(tmp_path, old_body, ("intent", "item~2/pay#1"))
    pauses.update({1: 0, 2: 0.05})
    resumed = go_on(store, variants.load(tmp_path, "new_code", fixed))
    assert resumed.result == ended.result
    assert "gift" not in ran
    fresh = go_on(tmp_path / "fresh.db", variants.load(tmp_path, "new_code", fixed))
    assert fresh.result == ended.result
    assert ran.count("gift") == 2


@pytest.mark.parametrize("verdict", ["landed", "not_landed"])
def test_an_open_effect_that_the_code_no_longer_makes_can_be_settled_by_a_person(tmp_path: Path, verdict: str) -> None:
    _, _, store = crashed(tmp_path, SEQUENCE, IN_SEQUENCE["mailing"])
    new = variants.load(tmp_path, "new_code", SEQUENCE.replace('await mail("x")', '"no"'))
    blocked = go_on(store, new).blocked
    assert blocked is not None
    assert [each["key"] for each in blocked.reason["recorded"]] == ["mail#1"]
    assert blocked.reason["recorded"][0]["open"]

    async def settle() -> None:
        async with hf.connect(str(store)) as app:
            (doubt,) = await (await app.find(RUN)).in_doubt()
            await doubt.resolve(hf.landed("mailed x") if verdict == "landed" else hf.not_landed(), note="looked it up")

    asyncio.run(settle())
    resumed = go_on(store, new)
    assert resumed.result == [1, "paid 10", 2, "no", 3]
    assert "mail x" not in ran


def test_unstable_arguments_of_the_same_code_are_answered_in_order_and_noted(tmp_path: Path) -> None:
    body = """
        a = await look(time.time())
        b = await pay(time.time())
        c, d = await asyncio.gather(look(time.time()), look(time.time()))
        return [a, b, c, d]
    """
    same = variants.load(tmp_path, "same_code", body)
    ended = run_here(tmp_path / "whole" / "holdfast.db", same())
    ran.clear()
    resumed = go_on(cut(ended, len(ended.records) - 1, tmp_path / "cut" / "holdfast.db"), same)
    assert resumed.result == ended.result
    assert ran == []
    noted = [r.key for r in resumed.ended.records if r.name == "unstable"]
    assert sorted(noted) == ["look#1", "look#2", "look#3", "pay#1"]


@pytest.mark.parametrize("place", [("intent", "pay#1"), ("done", "pay#1")], ids=" ".join)
@pytest.mark.parametrize(
    "body",
    [
        "return [await pay(n) for n in orders]",
        "return [await pay(orders[0]), *(await asyncio.gather(*(pay(n) for n in orders[1:])))]",
        "return [await pay(orders[0]), *[await each for each in [asyncio.create_task(buy(n)) for n in orders[1:]]]]",
    ],
    ids=["loop", "branches", "tasks"],
)
def test_an_effect_that_the_same_code_took_for_another_is_not_made_again(
    tmp_path: Path, body: str, place: tuple[str, str]
) -> None:
    """What it works on has changed (a setting, a file): a new order is before the one that was paid, or nearly so."""
    orders[:] = [1, 2]
    same, _, store = crashed(tmp_path, body, place)
    orders[:] = [900, 1]
    blocked = go_on(store, same).blocked
    assert blocked is not None
    assert ran.count("pay 1") <= 1  # `place` may be before its body, and its recorded arguments are settled
    assert [each["key"] for each in blocked.reason["recorded"]] == ["pay#1"]
    assert "Made again, it would happen twice" in str(blocked)
    assert "pay 900" not in ran
    orders[:] = [1, 2]
    resumed = go_on(store, same)
    assert resumed.result == ["paid 1", "paid 2"]
    assert ran.count("pay 1") <= 1
    assert ran.count("pay 2") == 1
