"""What a program comes to, found without Holdfast: by reading its tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.programs.trees import LOST, NEVER, UNDOABLE, Node, answer_value, mix, signal_values


class Raised(Exception):
    """What the program raises: the name of the type, and the last word of the message."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(kind, said)
        self.kind = kind
        self.said = said


@dataclass
class Act:
    """An effect of a run."""

    node: Node
    x: int  #: what it is called with
    is_optional: bool = False  #: what may be cancelled before it begins
    undone_by: str | None = None  #: the place of the saga that takes it back


@dataclass
class Expected:
    """How a run ends, and what it leaves in the world."""

    value: int | None = None
    error: Raised | None = None
    acts: dict[str, Act] = field(default_factory=dict)  #: by place
    steps: dict[str, int] = field(default_factory=dict)  #: what each step returns, by place
    children: dict[str, int] = field(default_factory=dict)  #: what the runs that it starts are given, by place
    lost: dict[str, int] = field(default_factory=dict)  #: the same for those that are cancelled, if they are started
    is_cancelled: bool = False

    def __str__(self) -> str:
        if self.is_cancelled:
            return "cancelled"
        return f"failed with {self.error.kind}: {self.error.said}" if self.error else f"done with {self.value}"


def expect(tree: Node, x: int, reader: Reader | None = None) -> Expected:
    """What the run of a program comes to."""
    reader = reader or Reader()
    if tree.word == LOST:
        reader.maybe(tree, x)
        reader.expected.is_cancelled = True
        return reader.expected
    try:
        reader.expected.value = reader.read(tree, x)
    except Raised as error:
        reader.expected.error = error
    return reader.expected


class Reader:
    """Reads the part of a tree that one run executes."""

    def __init__(self) -> None:
        self.expected = Expected()
        self._sagas: list[tuple[str, list[Act]]] = []

    def read(self, node: Node, x: int) -> int:
        at = node.at
        match node.kind:
            case "seq":
                for part in node.parts:
                    x = self.read(part, x)
                return x
            case "step" | "slow" | "thread" | "flaky" | "values":
                return self._step(node, x)
            case "fails" | "raise":
                raise Raised("ValueError", at)
            case "effect":
                return self._act(node, x)
            case "sleep" | "within":
                return self.read(node.parts[0], x) if node.parts else x
            case "receive":
                for value in signal_values(node):
                    x = mix(x, at, value)
                return x
            case "ask":
                return mix(x, at, answer_value(node))
            case "unheard" | "expires":
                for part in node.parts:
                    self.maybe(part, x)
                return mix(x, at, "TimeoutError")
            case "gather" | "group" | "as_completed":
                return mix(x, at, [self.read(part, mix(x, n)) for n, part in enumerate(node.parts)])
            case "race":
                for n, part in enumerate(node.parts):
                    if n != node.n:
                        self.maybe(part, x)
                return mix(self.read(node.parts[node.n], x), at)
            case "child":
                return self._child(node.parts[0], mix(x, at))
            case "detached":
                return self._detached(node, x)
            case "saga":
                return self._saga(node, x)
            case "catch":
                try:
                    return self.read(node.parts[0], x)
                except Raised as error:
                    return mix(x, at, error.kind, error.said)
            case other:
                raise AssertionError(f"no node {other}")

    def _step(self, node: Node, x: int) -> int:
        value = self.expected.steps[node.at] = mix(x, node.at)
        return value

    def _act(self, node: Node, x: int) -> int:
        act = self.expected.acts[node.at] = Act(node, x)
        if self._sagas and node.word in UNDOABLE:
            self._sagas[-1][1].append(act)
        return mix(x, node.at)

    def maybe(self, node: Node, x: int) -> None:
        """What is cancelled before it ends."""
        for each in node.own():
            if each.kind == "step":
                x = mix(x, each.at)
            elif each.kind == "effect":
                self.expected.acts[each.at] = Act(each, x, is_optional=True)
            elif each.kind == "child":
                self.expected.lost[each.parts[0].at] = mix(x, each.at)
            assert each.kind in ("effect", "seq", "step", "stuck", "sleep", "child") or each.word == NEVER, each

    def _child(self, tree: Node, x: int) -> int:
        self.expected.children[tree.at] = x
        ended = expect(tree, x, type(self)())
        if ended.error is not None:
            raise Raised("RunFailed", ended.error.said)
        assert ended.value is not None
        return ended.value

    def _detached(self, node: Node, x: int) -> int:
        side, meanwhile = node.parts
        side_x = mix(x, node.at)
        self.expected.children[side.at] = side_x
        y = self.read(meanwhile, x)
        return y if node.word == "forget" else mix(self._child(side, side_x), y)

    def _saga(self, node: Node, x: int) -> int:
        self._sagas.append((node.at, []))
        try:
            for part in node.parts:
                x = self.read(part, x)
            if node.word == "fails":
                raise Raised("ValueError", node.at)
        except Raised:
            place, acts = self._sagas.pop()
            for act in acts:
                act.undone_by = place
            raise
        _, acts = self._sagas.pop()
        if self._sagas:
            self._sagas[-1][1].extend(acts)
        return x
