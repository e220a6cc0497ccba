"""Random programs with the hazards of cancelling and of exceptions outside `Exception`: trees that grow from a seed.

What such a program comes to is certain, as with all programs. What it does on its way is not: a timeout may expire
while an effect happens, while it is undone, or after. What must hold in each case is said by `hazard_checks.py`.

Nodes that only these programs have:

    cut       its part is cancelled from outside, by way of `word`, if it has not ended before
    final     its second part is what a `finally` does, after its first
    deed      an effect: `word` is its sort, and what its body, `verify` and `undo` raise (see `How`)
    breaks    a step that raises what is no Exception; in a thread if n is 1
    plain     a timeout of asyncio's own around a wait that does not end
    erupts    the code of the agent raises what is no Exception; in a branch of its own if n is 1
    survives  a child, of which it is only known whether it failed
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.programs.trees import Chance, Node, _forever, _part

#: What is raised: an unknown BaseException, what an inner task that was cancelled raises, and so on.
BREAKS = ("Weird", "Cancelled", "bare", "Exit", "Keyboard", "Group")
CUTS = ("timeout", "plain", "wait_for", "armed", "race", "gather", "group", "cancels", "twice")
TIMED_CUTS = frozenset({"timeout", "plain", "wait_for"})
#: Timers of asyncio's own, which begin anew after a crash. What they cut is a child: in the same run, other calls would
#: be cut then than before. `armed` is one that is set by a step.
PLAIN_CUTS = frozenset({"plain", "wait_for"})
#: By sort: what to do in doubt. All can be undone.
DEEDS = ("plainly", "checked", "once", "retried", "asked", "failing")
PLAIN = ("timeout", "timeout_at", "wait_for")


@dataclass(frozen=True)
class How:
    """What the bodies of an effect do, as told by a word such as `checked late:Weird undo:Exit`.

    `early`, `late`: the body raises once, before or after it acts. `verify`: it raises once. `undo`: it raises once;
    `never`: it raises each time.
    """

    sort: str
    early: str = ""
    late: str = ""
    verify: str = ""
    undo: str = ""
    never: str = ""

    @classmethod
    def of(cls, word: str) -> How:
        sort, *more = word.split()
        return cls(sort, **dict(each.split(":") for each in more))

    def __str__(self) -> str:
        names = ("early", "late", "verify", "undo", "never")
        return " ".join([self.sort, *(f"{name}:{getattr(self, name)}" for name in names if getattr(self, name))])

    @property
    def is_sure(self) -> bool:
        """Can it be in doubt only if somebody is killed?"""
        return not self.early and not self.late


def grow_hazards(seed: int | str, *, without: frozenset[str] = frozenset(), name: str | None = None) -> Node:
    """The program of a seed. `without`: hazards, ways to cut and what is raised that it may not have."""
    rnd = random.Random(f"hazards {seed}")
    chance = Chance(rnd, without, rnd.randint(5, 12))
    at = name if name is not None else f"h{seed}"
    parts = [(_hazard if chance.chance(0.85) else _part)(chance, f"{at}.{n}", 1) for n in range(rnd.randint(2, 3))]
    if chance.chance(0.08) and "erupts" not in without:
        parts.append(_erupts(chance, f"{at}.{len(parts)}"))
    return Node("seq", at, parts=tuple(parts))


def _hazard(chance: Chance, at: str, depth: int) -> Node:
    """A subtree that raises nothing."""
    chance.budget -= 1
    kinds = ["cut"] * 6 + ["cut_cut"] * 2 + ["breaks", "breaks", "deed", "deed", "deed", "plain", "plain", "plain"]
    kinds += ["caught", "caught", "kept", "final", "survives"]
    if depth > 0:
        kinds += ["together", "child", "child"]
    match chance.one(*kinds):
        case "cut":
            return _cut(chance, at, lambda place: _victim(chance, place, depth))
        case "cut_cut":
            return _cut(chance, at, lambda place: _cut(chance, place, lambda inner: _victim(chance, inner, depth)))
        case "breaks":
            return Node("breaks", at, n=chance.random.randint(0, 1), word=chance.one(*BREAKS))
        case "plain":
            ms = chance.random.choice([20, 60, 150, 400])
            return Node("plain", at, n=ms, word=chance.one(*PLAIN), parts=(_forever(chance, f"{at}.0"),))
        case "caught":
            return Node("catch", at, parts=(_saga(chance, f"{at}.0", depth, fails=True),))
        case "kept":
            return _saga(chance, at, depth, fails=False)
        case "final":
            return Node("final", at, parts=(_deed(chance, f"{at}.0"), _deed(chance, f"{at}.1", "plainly")))
        case "survives":
            erupting = Node("seq", f"{at}.0", parts=(_deed(chance, f"{at}.0.0"), _erupts(chance, f"{at}.0.1")))
            return Node("survives", at, parts=(erupting,))
        case "together":
            kind = chance.random.choice(["gather", "group"])
            return Node(kind, at, parts=tuple(_hazard(chance, f"{at}.{n}", depth - 1) for n in range(2)))
        case "child":
            count = chance.random.randint(1, 2)
            return _child(at, *(_hazard(chance, f"{at}.0.{n}", depth - 1) for n in range(count)))
        case _:
            return _deed(chance, at)


def _cut(chance: Chance, at: str, victim: Callable[[str], Node]) -> Node:
    word = chance.one(*CUTS)
    ms = chance.random.choice([30, 60, 100, 160, 250, 1200]) if word in TIMED_CUTS else 0
    part = _child(f"{at}.0", victim(f"{at}.0.0.0")) if word in PLAIN_CUTS else victim(f"{at}.0")
    return Node("cut", at, n=ms, word=word, parts=(part,))


def _victim(chance: Chance, at: str, depth: int) -> Node:
    """What is cut: it has something to undo, and does so of its own accord, or does not end before it is cancelled."""
    if chance.chance(0.2):
        return Node("final", at, parts=(_victim(chance, f"{at}.0", depth), _deed(chance, f"{at}.1", "plainly")))
    return _saga(chance, at, depth, fails=chance.chance(0.6), is_stuck=True)


def _saga(chance: Chance, at: str, depth: int, *, fails: bool, is_stuck: bool = False) -> Node:
    """`is_stuck`: if it does not fail, it does not end either."""
    count = chance.random.randint(3, 4)
    parts = [_deed(chance, f"{at}.0", "plainly"), *(_undoable(chance, f"{at}.{n}", depth) for n in range(1, count))]
    if not fails and is_stuck:
        last = f"{at}.{len(parts)}"
        if depth > 0 and chance.chance(0.35):
            parts.append(_child(last, _saga(chance, f"{last}.0.0", depth - 1, fails=False, is_stuck=True)))
        else:
            parts.append(_forever(chance, last))
    return Node("saga", at, word="fails" if fails else "", parts=tuple(parts))


def _undoable(chance: Chance, at: str, depth: int) -> Node:
    kinds: dict[str, Callable[[], Node]] = {"deed": lambda: _deed(chance, at)}
    if depth > 0 and chance.chance(0.4):
        kinds = {
            "step": lambda: Node("step", at),
            "saga": lambda: _saga(chance, at, depth - 1, fails=False),
            "caught": lambda: Node("catch", at, parts=(_saga(chance, f"{at}.0", depth - 1, fails=True),)),
            "gather": lambda: Node("gather", at, parts=tuple(_deed(chance, f"{at}.{n}") for n in range(2))),
            "child": lambda: _child(at, _saga(chance, f"{at}.0.0", depth - 1, fails=False)),
        }
    return kinds[chance.one(*kinds)]()


def _child(at: str, *parts: Node) -> Node:
    return Node("child", at, parts=(Node("seq", f"{at}.0", parts=parts),))


def _deed(chance: Chance, at: str, *sorts: str) -> Node:
    rnd = chance.random
    sort = chance.one(*(sorts or (*DEEDS, "plainly", "plainly")))
    how: dict[str, str] = {}
    if sort != "plainly":
        how[rnd.choice(["early", "late"])] = chance.one(*BREAKS)
    if sort == "checked" and chance.chance(0.5):
        how["verify"] = chance.one(*BREAKS)
    if chance.chance(0.2) and "undo raises" not in chance.without:
        how["undo"] = chance.one(*BREAKS)
    elif chance.chance(0.04) and "undo raises" not in chance.without:
        how["never"] = chance.one(*BREAKS, "Value")
    return Node("deed", at, word=str(How(sort, **how)))


def _erupts(chance: Chance, at: str) -> Node:
    return Node("erupts", at, n=chance.random.choice([0, 0, 1]), word=chance.one(*BREAKS))
