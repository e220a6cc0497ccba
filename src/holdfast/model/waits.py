"""What a parked run waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from holdfast.base.data import brisk


class WaitKind(StrEnum):
    """What ends a wait."""

    timer = "timer"  #: its time
    signal = "signal"  #: a signal
    question = "question"  #: a person's answer
    child = "child"  #: the end of another run
    doubt = "doubt"  #: a person's verdict on an effect
    unknown = "unknown"  #: something that this version does not know; never written

    @classmethod
    def of(cls, text: object) -> WaitKind:
        return _KINDS.get(text, cls.unknown) if isinstance(text, str) else cls.unknown


_KINDS: Mapping[str, WaitKind] = {each.value: each for each in WaitKind}


@brisk
class Wait:
    """One call that waits. `shown` is what people see of it, and what tells for whom mail is."""

    kind: WaitKind
    key: str
    due: int | None  #: µs
    shown: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The signal, or the name of the call."""
        return str(self.shown.get("name") or "")

    @property
    def child(self) -> str:
        """The run that it waits for."""
        return str(self.shown.get("child") or "")

    @property
    def question(self) -> str:
        """The id of the question."""
        return str(self.shown.get("question") or "")

    @property
    def prompt(self) -> str:
        """What is asked."""
        return str(self.shown.get("prompt") or "")


def foremost(waits: Iterable[Wait]) -> WaitKind:
    """What a run waits for, in a word: the first that applies."""
    kinds = {wait.kind for wait in waits}
    first = (WaitKind.doubt, WaitKind.question, WaitKind.signal, WaitKind.child)
    return next((kind for kind in first if kind in kinds), WaitKind.timer)
