"""Checkpoints: the head of a turn. All that the past of a run still decides, as one record.

A checkpoint has the state that the agent's loop goes on with (`args`), and what a resume would otherwise have to read
the turns before for (`payload`): mail that nobody has taken, which changes of the code were taken, which code wrote the
records that follow, the last tick. Sums of usage and time are in the row's summary, which goes on counting. Nothing is
open at the head of a turn but timeouts of the prologue, so there is nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from holdfast.base.data import brisk
from holdfast.base.numbers import Numbers
from holdfast.codec.fastjson import encode
from holdfast.model import Kind, Record

#: The name of the record; the journal's own, as all that begins so.
TURN: Final = "hf:turn"
_MARK: Final = "@"
_NONE: Final = Numbers()


def turn_path(turn: int) -> str:
    """The branch that the main line is in during a turn; the key of the checkpoint at its head."""
    return f"{_MARK}{turn}" if turn else ""


def is_turn(path: str) -> bool:
    """Is it the main line's own branch, in whichever turn?"""
    return not path or (path[0] == _MARK and "/" not in path)


def without_turn(key: str) -> str:
    """The key of a call as it is named within its turn."""
    return key.partition("/")[2] if key[:1] == _MARK and "/" in key else key


@brisk
class Past:
    """What a checkpoint holds besides the state."""

    mail: int = 0  #: what was sent up to this number has been read
    unread: Numbers = _NONE  #: numbers of mail that was read and that nobody has taken: signals, interrupts
    patches: tuple[str, ...] = ()  #: that turns have taken
    code: str = ""  #: the digest of the code that writes what follows, in the same claim
    tick: int = 0  #: the last one
    told: tuple[str, ...] = ()  #: notes that are made once
    cancel: dict[str, Any] | None = None  #: who asked for the run to be cancelled, and why
    plan: dict[str, Any] | None = None  #: the items of its plan
    outside: dict[str, str] | None = None  #: what guards found last, by name
    workspaces: dict[str, Any] | None = None  #: which version each of them is
    budget: dict[str, Any] | None = None  #: the limits that it has

    def text(self) -> str:
        """As JSON; what is empty is left out, since there is one in each turn."""
        is_bare = not (self.unread or self.patches or self.told or self.cancel or self.plan or self.outside)
        if is_bare and not self.workspaces and not self.budget and self.code.isalnum():
            return f'{{"code":"{self.code}","tick":{self.tick},"mail":{self.mail}}}'
        said: dict[str, Any] = {"code": self.code, "tick": self.tick, "mail": self.mail}
        if self.unread:
            said["unread"] = self.unread.plain()
        if self.patches:
            said["patches"] = list(self.patches)
        if self.told:
            said["told"] = list(self.told)
        if self.cancel:
            said["cancel"] = self.cancel
        if self.plan:
            said["plan"] = self.plan
        if self.outside:
            said["outside"] = self.outside
        if self.workspaces:
            said["workspaces"] = self.workspaces
        if self.budget:
            said["budget"] = self.budget
        return encode(said)

    @classmethod
    def read(cls, checkpoint: Record) -> Past:
        """That of a checkpoint; what a later version has added is passed over."""
        said: dict[str, Any] = json.loads(checkpoint.payload or "{}")
        return cls(
            mail=said.get("mail", 0),
            unread=Numbers.of(said.get("unread", ())),
            patches=tuple(said.get("patches", ())),
            code=said.get("code", ""),
            tick=said.get("tick", 0),
            told=tuple(said.get("told", ())),
            cancel=said.get("cancel"),
            plan=said.get("plan"),
            outside=said.get("outside"),
            workspaces=said.get("workspaces"),
            budget=said.get("budget"),
        )


def checkpoint_in(records: Sequence[Record], turn: int) -> Record | None:
    """The head of a turn."""
    return next((r for r in reversed(records) if r.kind == Kind.checkpoint and r.turn == turn), None)
