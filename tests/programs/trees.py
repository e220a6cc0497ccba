"""Random programs for an agent, as data: trees that grow from a seed.

Each node takes a number and gives one, which depends on the number and on the node's place; so whoever is handed the
value of another call, or of none, ends with another number. A tree is built so that what it comes to is certain,
whatever is killed in between: who wins a race and which timeout expires follows from the tree, never from the speed of
the machine. (`oracle.py` says what it comes to.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

#: What waits for longer than any test takes.
FOREVER_S = 36_000
SIGNALS = tuple(f"s{n}" for n in range(8))
NEVER = "never"  #: the signal that nobody sends, and the question that nobody answers
LOST = "lost"  #: the program of a run that is cancelled, because the one that started it waits no longer

#: Effects: how they are settled when in doubt, and whether they can be taken back.
EFFECTS = ("sure", "again", "both", "booked", "flaky_effect", "stubborn")
UNDOABLE = frozenset({"booked", "stubborn"})
#: Kinds of nodes that came with waiting; the rest needs steps, effects and children only.
WAITS = frozenset({"sleep", "receive", "unheard", "ask"})


@dataclass(frozen=True)
class Node:
    """A part of a program. `n` and `word` say more, by kind."""

    kind: str
    at: str  #: its place, unique among all programs of a test
    n: int = 0
    word: str = ""
    parts: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        yield self
        for part in self.parts:
            yield from part.walk()

    def own(self) -> Iterator[Node]:
        """The nodes that this run executes itself; those below a child belong to another run."""
        yield self
        for part in self.parts[1:] if self.kind == "detached" else () if self.kind == "child" else self.parts:
            yield from part.own()

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        more = "".join(f" {name}={value}" for name, value in (("n", self.n), ("word", self.word)) if value)
        yield f"{'  ' * depth}{self.kind} {self.at}{more}"
        for part in self.parts:
            yield from part._lines(depth + 1)


def mix(x: int, *words: object) -> int:
    """A number that follows from all of them."""
    text = "/".join(str(each) for each in (x, *words))
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big")


def signal_values(node: Node) -> list[int]:
    """What the driver of a test has to send to a `receive` node, in order."""
    return [mix(n, node.at, "signal") for n in range(node.n)]


def answer_value(node: Node) -> bool | int:
    """What the driver of a test has to answer to an `ask` node."""
    value = mix(0, node.at, "answer")
    return value % 2 == 0 if node.word == "yes" else value


@dataclass
class Chance:
    """What a tree is grown with."""

    random: random.Random
    without: frozenset[str]
    budget: int
    signals: int = 0  #: used so far in this run

    def one(self, *kinds: str) -> str:
        return self.random.choice([kind for kind in kinds if kind not in self.without])

    def chance(self, share: float) -> bool:
        return self.random.random() < share


LEAVES = ["step"] * 4 + ["thread", "flaky", "values", "effect", "effect", "effect", "sleep", "sleep", "receive"]
LEAVES += ["unheard", "expires", "caught_step", "ask"]
BRANCHING = ["gather", "gather", "group", "as_completed", "race", "race", "within", "child", "child", "detached"]
BRANCHING += ["saga", "saga", "catch"]


def grow(seed: int | str, *, without: frozenset[str] = frozenset(), name: str | None = None) -> Node:
    """The program of a seed. `without`: kinds of nodes that it may not have."""
    rnd = random.Random(f"tree {seed}")
    chance = Chance(rnd, without, rnd.randint(3, 14))
    at = name if name is not None else f"p{seed}"
    parts = [_part(chance, f"{at}.{n}", 3) for n in range(rnd.randint(2, 3))]
    if chance.chance(0.12):
        parts.append(_raising(chance, f"{at}.{len(parts)}", 2))
    return Node("seq", at, parts=tuple(parts))


def _sequence(chance: Chance, at: str, depth: int, least: int = 1) -> Node:
    count = chance.random.randint(least, 3)
    return Node("seq", at, parts=tuple(_part(chance, f"{at}.{n}", depth) for n in range(count)))


def _part(chance: Chance, at: str, depth: int) -> Node:
    """A subtree that raises nothing."""
    if depth == 0 or chance.budget <= 0 or chance.chance(0.4):
        return _leaf(chance, at)
    chance.budget -= 1
    kind = chance.one(*BRANCHING)
    rnd = chance.random
    match kind:
        case "gather" | "group" | "as_completed":
            count = rnd.randint(2, 4)
            return Node(kind, at, parts=tuple(_sequence(chance, f"{at}.{n}", depth - 1) for n in range(count)))
        case "race":
            return _race(chance, at, _sequence(chance, f"{at}.0", depth - 1))
        case "within":
            return Node(kind, at, n=FOREVER_S * 1000, parts=(_sequence(chance, f"{at}.0", depth - 1),))
        case "child":
            return Node(kind, at, parts=(_another_run(chance, f"{at}.0", depth - 1),))
        case "detached":
            word = rnd.choice(["", "", "forget"])
            side, meanwhile = _another_run(chance, f"{at}.0", depth - 1), _sequence(chance, f"{at}.1", depth - 1)
            return Node(kind, at, word=word, parts=(side, meanwhile))
        case "saga":
            if chance.chance(0.5):
                return Node("catch", at, parts=(_saga(chance, f"{at}.0", depth - 1, fails=True),))
            return _saga(chance, at, depth - 1, fails=False)
        case _:
            return Node("catch", at, parts=(_raising(chance, f"{at}.0", depth - 1),))


def _leaf(chance: Chance, at: str) -> Node:
    chance.budget -= 1
    kind = chance.one(*LEAVES)
    rnd = chance.random
    match kind:
        case "flaky":
            return Node(kind, at, n=rnd.randint(1, 2))
        case "effect":
            return _effect(chance, at)
        case "sleep":
            return Node(kind, at, n=rnd.choice([1, 5, 20, 50, 120, 300, 1200]))
        case "receive":
            if chance.signals == len(SIGNALS):
                return Node("step", at)
            chance.signals += 1
            return Node(kind, at, n=rnd.choice([1, 1, 2]), word=SIGNALS[chance.signals - 1])
        case "unheard":
            return Node(kind, at, n=rnd.choice([10, 60, 200, 1200]))
        case "ask":
            return Node(kind, at, word=rnd.choice(["yes", "number"])) if chance.chance(0.5) else Node("step", at)
        case "expires":
            return Node(kind, at, n=rnd.choice([5, 30, 100, 200]), parts=(_forever(chance, f"{at}.0"),))
        case "caught_step":
            return Node("catch", at, parts=(Node("fails", f"{at}.0"),))
        case _:
            return Node(kind, at)


def _effect(chance: Chance, at: str, *kinds: str) -> Node:
    word = chance.one(*(kinds or EFFECTS))
    return Node("effect", at, n=chance.random.randint(1, 2) if word == "flaky_effect" else 0, word=word)


def _race(chance: Chance, at: str, winner: Node) -> Node:
    losers = [_forever(chance, f"{at}.{n}") for n in range(1, chance.random.randint(2, 3))]
    place = chance.random.randint(0, len(losers))
    return Node("race", at, n=place, parts=(*losers[:place], winner, *losers[place:]))


def _forever(chance: Chance, at: str, *, may_start: bool = True) -> Node:
    """What does not come to its end before it is cancelled; an effect in it may happen once, or not at all."""
    kinds: dict[str, Callable[[], Node]] = {
        "stuck": lambda: Node("stuck", at),
        "sleep": lambda: Node("sleep", at, n=FOREVER_S * 1000),
        "receive": lambda: Node("receive", at, n=1, word=NEVER),
        "ask": lambda: Node("ask", at, word=NEVER),
        "effect": lambda: Node("seq", at, parts=(_effect(chance, f"{at}.0", "sure", "both"), Node("stuck", f"{at}.1"))),
        "asleep": lambda: Node(
            "seq", at, parts=(_effect(chance, f"{at}.0", "sure", "both"), Node("sleep", f"{at}.1", n=FOREVER_S * 1000))
        ),
    }
    if may_start and "sleep" not in chance.without:
        kinds["child"] = lambda: Node("child", at, parts=(_lost(chance, f"{at}.0"),))
    if "sleep" in chance.without:
        del kinds["asleep"]
    return kinds[chance.one(*kinds)]()


def _lost(chance: Chance, at: str) -> Node:
    return Node("seq", at, word=LOST, parts=(Node("step", f"{at}.0"), _forever(chance, f"{at}.1", may_start=False)))


def _saga(chance: Chance, at: str, depth: int, *, fails: bool) -> Node:
    def part(place: str) -> Node:
        if chance.chance(0.6):
            return _effect(chance, place, "booked", "booked", "stubborn", "sure")
        return _part(chance, place, depth)

    first = _effect(chance, f"{at}.0", "booked")
    more = [part(f"{at}.{n}") for n in range(1, chance.random.randint(2, 4))]
    return Node("saga", at, word="fails" if fails else "", parts=(first, *more))


def _another_run(chance: Chance, at: str, depth: int) -> Node:
    signals, chance.signals = chance.signals, 0
    tree = _sequence(chance, at, max(0, depth))
    chance.signals = signals
    return tree


def _raising(chance: Chance, at: str, depth: int) -> Node:
    """A subtree that raises in the end."""
    if depth <= 0:
        return Node("raise", at)
    before = _sequence(chance, f"{at}.0", depth - 1)
    inner = f"{at}.1"
    match chance.one("raise", "raise", "fails", "child", "detached", "race", "saga", "within"):
        case "fails":
            last = Node("fails", inner)
        case "child":
            failing = _another_run(chance, f"{inner}.0", depth - 1)
            end = Node("raise", f"{inner}.0.end")
            last = Node("child", inner, parts=(replace(failing, parts=(*failing.parts, end)),))
        case "detached":
            failing = Node("seq", f"{inner}.0", parts=(Node("step", f"{inner}.0.0"), Node("raise", f"{inner}.0.1")))
            last = Node("detached", inner, parts=(failing, _sequence(chance, f"{inner}.1", depth - 1)))
        case "race":
            last = _race(chance, inner, _raising(chance, f"{inner}.0", depth - 1))
        case "saga":
            last = _saga(chance, inner, depth - 1, fails=True)
        case "within":
            last = Node("within", inner, n=FOREVER_S * 1000, parts=(_raising(chance, f"{inner}.0", depth - 1),))
        case _:
            last = Node("raise", inner)
    return Node("seq", at, parts=(before, last))
