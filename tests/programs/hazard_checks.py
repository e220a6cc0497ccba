"""What must be true when programs with hazards are over, whatever was cancelled, raised, paused and killed meanwhile.

Told from the world (what was really done and undone), from the marks that the code left (which blocks it entered and
how it left them) and from the trees. The journal is asked only whether something is left open in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from holdfast.history.facts import note_of
from holdfast.model import OUTCOMES, Kind, Status
from holdfast.testing import Ledger, check_history
from tests.programs.agents import Deed, program
from tests.programs.checks import Findings, Left, Told, left_over
from tests.programs.hazards import How
from tests.programs.marks import Mark
from tests.programs.oracle import Act, Raised, Reader, expect
from tests.programs.trees import UNDOABLE, Node, mix

#: What is below them may be cancelled before its end.
CUTTING = frozenset({"cut", "plain", "expires", "race"})
_UNDO_ATTEMPTS = 3  #: those that were killed count too
_IN_TURN = frozenset({"seq", "saga", "final", "catch"})


class HazardReader(Reader):
    """Reads trees with hazards."""

    def read(self, node: Node, x: int) -> int:
        match node.kind:
            case "deed":
                self.expected.acts[node.at] = Act(node, x)
                return mix(x, node.at)
            case "breaks":
                return mix(x, node.at, "broke")
            case "plain":
                return mix(x, node.at, "TimeoutError")
            case "cut":
                return mix(x, node.at, "cut")
            case "final":
                y = self.read(node.parts[0], x)
                self.read(node.parts[1], x)
                return y
            case "erupts":
                raise Raised("erupted", node.at)
            case "survives":
                return mix(x, node.at, "RunFailed")
            case _:
                return super().read(node, x)


@dataclass
class Facts:
    """All that is known when a batch is over."""

    left: Left
    url: str
    roots: Sequence[Node]
    marks: Sequence[Mark]
    ledger: Ledger
    cancelled: frozenset[str]  #: runs that people cancelled
    paused: frozenset[str]  #: runs that people paused
    is_calm: bool  #: nobody was killed
    _above: dict[str, Node] = field(default_factory=dict)  #: by place: the node above it, across runs
    _last: dict[tuple[str, str], Mark] = field(default_factory=dict)  #: by run and place: how a saga was left

    def __post_init__(self) -> None:
        for root in self.roots:
            for node in root.walk():
                self._above.update({part.at: node for part in node.parts})
        for mark in sorted(self.marks, key=lambda mark: mark.time):
            if mark.what in ("entered", "left", "kept"):
                self._last[mark.run, mark.at] = mark

    def node_above(self, at: str) -> Node | None:
        return self._above.get(at)

    def above(self, at: str) -> Iterator[Node]:
        """The nodes above a place, the nearest first, up to the root of the program."""
        while (node := self._above.get(at)) is not None:
            yield node
            at = node.at

    def above_in_run(self, told: Told, at: str) -> Iterator[Node]:
        for node in self.above(at) if at != told.tree.at else ():
            yield node
            if node.at == told.tree.at:
                return

    def undoer(self, told: Told, at: str) -> str | None:
        """The saga that has to undo what was done at a place: the nearest one that was not left well."""
        for node in self.above_in_run(told, at):
            last = self._last.get((str(told.row.id), node.at))
            if node.kind == "saga" and (last is None or last.what != "kept"):
                return node.at
        return None

    def is_certain(self, told: Told) -> bool:
        """Does it come to its end, whatever happens?"""
        if told.tree.at.partition(".")[0] in self.cancelled:
            return False
        return not any(node.kind in CUTTING for node in self.above(told.tree.at))


def check_hazards(facts: Facts) -> Findings:
    found = Findings()
    runs = facts.left.runs
    for message in [
        *left_over(facts.left),
        *(f"history: {each}" for each in check_history(facts.url, facts.ledger)),
    ]:
        run_id = message.partition("run ")[2].partition(" ")[0].rstrip(":")
        found.wrong[run_id if run_id in runs else None].append(message)
    found.wrong[None] += [f"{root.at} was accepted and is not stored" for root in facts.roots if root.at not in runs]
    for run_id, told in runs.items():
        problems = [*_end(facts, told), *_open_intents(facts, told), *_deeds(facts, told)]
        problems += [*_undo_order(facts, told), *_closings(facts, told)]
        found.wrong[run_id] += problems
        found.wrong[run_id] += _order_with_parent(facts, told)
    found.wrong = {run_id: problems for run_id, problems in found.wrong.items() if problems}
    for run_id in filter(None, found.wrong):
        found.more[run_id] = ["marks:", *(f"  {mark}" for mark in facts.marks if mark.run == run_id)]
    return found


def _end(facts: Facts, told: Told) -> Iterator[str]:
    status, run_id = told.row.status, str(told.row.id)
    if run_id in facts.cancelled and status is not Status.cancelled:
        yield f"people were told that it is cancelled, and it is {status}"
    if not facts.is_certain(told):
        if status is Status.failed and not any("erupts" in each or "fails" in each for each in _words(told.tree)):
            yield f"it failed: {told.end}"
        return
    expected = expect(told.tree, told.x, HazardReader())
    if expected.error is not None and expected.error.kind == "erupted":
        if status is not Status.failed:
            yield f"its code raised what is no Exception, and it is {status}"
    elif expected.error is not None:
        if status is not Status.failed or expected.error.said not in told.end:
            yield f"it is {status} with {told.end}; expected: {expected}"
    elif status is not Status.done:
        yield f"it is {status} with {told.end}; expected: {expected}"
    elif program.coder.loads(told.end, what="the result") != expected.value:
        yield f"it came to {told.end}; expected: {expected}"
    acted = {deed.at: deed for deed in told.deeds if deed.what == "act"}
    for at, act in expected.acts.items():
        how = How.of(act.node.word)
        may_be_left = act.is_optional or (how.sort in ("once", "failing") and how.early)
        if at in acted and acted[at].x != act.x:
            yield f"{act.node.word} at {at} was given {acted[at].x}, expected {act.x}"
        if at not in acted and not may_be_left and (facts.is_calm or how.sort != "failing"):
            yield f"{act.node.word} at {at} did not happen"


def _words(tree: Node) -> list[tuple[str, str]]:
    return [(node.kind, node.word) for node in tree.own()]


def _open_intents(facts: Facts, told: Told) -> Iterator[str]:
    last: dict[str, str] = {}
    is_cancelled = told.row.status is Status.cancelled
    for record in told.records:
        if record.kind == Kind.intent or record.kind in OUTCOMES:
            last[record.key] = record.kind
        elif record.kind == Kind.noted and record.name == "held":
            last[record.key] = Kind.noted
        elif record.kind == Kind.settled and note_of(record)["verdict"] == "not_landed" and is_cancelled:
            last[record.key] = Kind.settled  # it did not happen, and is not tried again
    if is_cancelled:  # nobody is asked any more, but it is said
        said = [record.payload or "" for record in told.records if record.name == "left in doubt"]
        last = {key: kind for key, kind in last.items() if not any(f'"{key}"' in text for text in said)}
    for key, kind in last.items():
        if kind == Kind.intent or kind == Kind.noted:
            yield f"it is {told.row.status}, and {key} is open: an intent without an outcome"


def _most_acts(facts: Facts, how: How) -> int:
    if how.sort in ("retried", "again"):
        return 2 if facts.is_calm and how.late else 1 if facts.is_calm else 1000
    return 1


def _deeds(facts: Facts, told: Told) -> Iterator[str]:
    nodes = {node.at: node for node in told.tree.own() if node.kind in ("deed", "effect")}
    by_place: dict[str, list[Deed]] = defaultdict(list)
    for deed in told.deeds:
        by_place[deed.at].append(deed)
    for at, deeds in by_place.items():
        node = nodes[at]
        how = How.of(node.word)
        acts: dict[str, int] = defaultdict(int)
        undone: dict[str, int] = defaultdict(int)
        for deed in deeds:
            (acts if deed.what == "act" else undone)[deed.key] += 1
        if len(acts) > 1 and how.sort != "stubborn":
            yield f"{node.word} at {at} happened under {len(acts)} keys"
        for key, count in acts.items():
            if count > _most_acts(facts, how):
                yield f"{node.word} at {at} happened {count} times: {[d for d in deeds if d.key == key]}"
        if node.kind == "effect" and how.sort not in UNDOABLE:
            continue
        undoer = facts.undoer(told, at)
        standing = [key for key in acts if key not in undone]
        begun = sum(mark.what == "undo begins" and mark.at == at for mark in facts.marks)
        is_given_up = how.never or (how.undo and begun > _UNDO_ATTEMPTS)
        if undoer is not None and standing and not is_given_up:
            yield f"{node.word} at {at} was done, saga {undoer} was left by an exception, and it was not undone"
        if undoer is not None and how.never and not any(m.what == "undo raises" and m.at == at for m in facts.marks):
            yield f"{node.word} at {at} was done, saga {undoer} was left by an exception, and no undo was tried"
        if undoer is None and how.sort != "stubborn" and undone:
            yield f"{node.word} at {at} was undone and should stand"
        if undoer is None and how.sort == "stubborn" and len(standing) != 1 and facts.is_certain(told):
            yield f"{node.word} at {at} stands {len(standing)} times"
        for key, count in undone.items():
            if facts.is_calm and count > 1:
                yield f"{node.word} at {at} was undone {count} times"
            if facts.is_calm and key not in acts and how.is_sure:
                yield f"{node.word} at {at} was undone and had not been done"


def _spans(told: Told, what: str) -> dict[str, tuple[int, int]]:
    """By place: when it was done, or undone, for the first time."""
    spans: dict[str, tuple[int, int]] = {}
    for deed in sorted((deed for deed in told.deeds if deed.what == what), key=lambda deed: deed.done):
        spans.setdefault(deed.at, (deed.began, deed.done))
    return spans


def _undo_order(facts: Facts, told: Told) -> Iterator[str]:
    """A saga takes back in the reverse order of what it did."""
    by_saga: dict[str, list[str]] = defaultdict(list)
    for node in told.tree.own():
        if node.kind == "deed" and (undoer := facts.undoer(told, node.at)) is not None:
            by_saga[undoer].append(node.at)
    undone = _spans(told, "undo")
    for saga, places in by_saga.items():
        for first, second in combinations([at for at in places if at in undone], 2):
            if _are_in_turn(facts, told, first, second) and undone[second][1] > undone[first][1]:
                yield f"saga {saga}: {first} was done before {second}, and was undone before it"


def _are_in_turn(facts: Facts, told: Told, first: str, second: str) -> bool:
    """Does the program do the one after the other?"""
    above = {node.at: node for node in facts.above_in_run(told, first)}
    between: list[Node] = []
    for node in facts.above_in_run(told, second):
        if node.at in above:
            mine = list(above.values())
            between += mine[: mine.index(above[node.at])]
            return node.kind in _IN_TURN and not any(each.kind == "cut" for each in between)
        between.append(node)
    return False


def _order_with_parent(facts: Facts, told: Told) -> Iterator[str]:
    """What a child did in a saga is undone before what its parent had done before it."""
    parent = facts.left.runs.get(str(told.row.parent_id))
    child = facts.node_above(told.tree.at)
    if parent is None or child is None or child.kind != "child":
        return
    around = {node.at for node in facts.above_in_run(parent, child.at)}
    acts, undos = _spans(told, "act"), _spans(told, "undo")
    for at, (began, _) in _spans(parent, "undo").items():
        acted = _spans(parent, "act").get(at)
        if acted is None or facts.undoer(parent, at) not in around or not _are_in_turn(facts, parent, at, child.at):
            continue
        for below, (_, undone) in undos.items():
            if below in acts and acts[below][0] > acted[1] and undone > began and facts.undoer(told, below) is not None:
                yield f"{below} was done by a child, after {at} by its parent, and was undone after it"


def _closings(facts: Facts, told: Told) -> Iterator[str]:
    """A `finally` that was entered does what it has to do."""
    root = told.tree.at.partition(".")[0]
    if told.row.status is Status.cancelled and (not facts.is_calm or root in facts.paused):
        return  # it was not in memory, perhaps
    nodes = {node.at: node for node in told.tree.own() if node.kind == "final"}
    acted = {deed.at for deed in told.deeds if deed.what == "act"}
    for mark in facts.marks:
        if mark.what != "closing" or mark.run != str(told.row.id) or mark.more == "NoneType":
            continue  # without an exception it is code like any other, and may be cancelled
        if nodes[mark.at].parts[1].at not in acted:
            yield f"{mark.at}: its `finally` was entered ({mark.more}), and the effect in it did not happen"


def hits(facts: Facts) -> Mapping[str, set[str]]:
    """Which programs met each hazard."""
    met: dict[str, set[str]] = defaultdict(set)
    for mark in facts.marks:
        root = mark.at.partition(".")[0]
        if mark.what in ("effect raises", "step raises", "verify raises", "undo raises", "agent raises"):
            met[f"{mark.what}: {mark.more}"].add(root)
        elif mark.what == "plain timeout":
            met[f"plain {mark.more}"].add(root)
        elif mark.what == "closing" and mark.more == "CancelledError":
            met["a finally while cancelled"].add(root)
        elif mark.what == "left" and mark.more.endswith("cut"):
            cut = next((node for node in facts.above(mark.at) if node.kind == "cut"), None)
            met["cancelled while undoing"].add(root)
            met[f"cancelled while undoing: {cut.word if cut is not None else 'people'}"].add(root)
            if any(node.kind == "child" for node in facts.above(mark.at)):
                met["cancelled while undoing: a child run"].add(root)
            if any(node.kind == "saga" for node in facts.above(mark.at)):
                met["cancelled while undoing: a nested saga"].add(root)
    return met
