"""What was sent to one run and is not acted on yet: signals, answers, verdicts, ends of children."""

from __future__ import annotations

from collections import deque
from typing import Any

from holdfast.base.numbers import Numbers
from holdfast.journal.replay import Replay
from holdfast.model import Mail, WaitKind
from holdfast.running.waits import Waits


class Inbox:
    """Gives what arrives to whoever waits for it, or keeps it."""

    def __init__(self, waits: Waits, replay: Replay) -> None:
        self._waits = waits
        self._replay = replay
        self._verdicts: dict[str, dict[str, Any]] = {}  # what persons said about effects, by key
        self._answers: dict[str, dict[str, Any]] = {}  # what persons answered, by the question's key
        self._signals: dict[str, deque[Mail]] = {}  # not received yet, by name
        self._decided: dict[int, Mail] = {}  # given to a wait before, in case the code gives it up now
        self._ended_children: set[str] = set()
        self._plan_changes: list[Mail] = []
        self.seen = 0  #: the number of the last mail that was read
        self.untaken = Numbers()  #: of mail that was read, and that the run is yet to act on

    # verdicts

    def resolved(self, key: str, verdict: dict[str, Any]) -> None:
        """A person's verdict on an effect arrived."""
        if not self._waits.end(key, WaitKind.doubt, verdict) and key in self._replay.entries:
            self._verdicts[key] = verdict

    def has_verdict(self, key: str) -> bool:
        return key in self._verdicts

    def take_verdict(self, key: str) -> dict[str, Any] | None:
        """What a person said about an effect in doubt, if they did."""
        return self._verdicts.pop(key, None)

    # answers

    def answered(self, key: str, answer: dict[str, Any]) -> None:
        """A person's answer to a question arrived."""
        self._answers[key] = answer
        self._waits.end(key, WaitKind.question, answer)

    def answer(self, key: str) -> dict[str, Any] | None:
        return self._answers.get(key)

    # signals

    def signalled(self, mail: Mail) -> None:
        """A signal arrived: it goes to whoever waits for it longest, or waits itself."""
        if not self._waits.end_first(WaitKind.signal, mail.key, mail):
            self._signals.setdefault(mail.key, deque()).append(mail)
            self.untaken.add(mail.number)

    def next_signal(self, name: str) -> Mail | None:
        if not (waiting := self._signals.get(name)):
            return None
        mail = waiting.popleft()
        self.untaken.discard(mail.number)
        return mail

    def return_signal(self, mail: Mail) -> None:
        """Nobody has seen it: it is the next one again."""
        self.untaken.add(mail.number)
        waiting = self._signals.setdefault(mail.key, deque())
        if not waiting or mail.number < waiting[0].number:
            waiting.appendleft(mail)
        else:
            self._signals[mail.key] = deque(sorted([*waiting, mail], key=lambda m: m.number))

    def keep_decided(self, mail: Mail) -> None:
        """A record says that it was given to a wait."""
        self._decided[mail.number] = mail

    def take_decided(self, number: int) -> Mail | None:
        return self._decided.pop(number, None)

    @property
    def unread(self) -> list[str]:
        """The names of signals that nobody received."""
        return sorted(name for name, waiting in self._signals.items() if waiting)

    # changes to the plan

    def planned(self, mail: Mail) -> None:
        """A person changed the run's plan: the next call of the plan takes it."""
        self._plan_changes.append(mail)
        self.untaken.add(mail.number)

    def take_plan_changes(self) -> list[Mail]:
        """In the order in which they were accepted."""
        taken, self._plan_changes = self._plan_changes, []
        for mail in taken:
            self.untaken.discard(mail.number)
        return taken

    # interrupts

    def interrupted(self, number: int) -> None:
        """A message came that is to be handled."""
        self.untaken.add(number)

    def handling(self, number: int) -> None:
        """A record says that its handler begins."""
        self.untaken.discard(number)

    # turns

    def read_up_to(self, number: int) -> None:
        """Mail up to this number was read."""
        self.seen = number

    def begin_turn(self) -> None:
        """What was told of calls that have ended is of no use any more."""
        self._verdicts.clear()
        self._answers.clear()
        self._decided.clear()
        self._ended_children.clear()

    # children

    def child_ended(self, child: str) -> None:
        self._ended_children.add(child)
        self._waits.end_all(WaitKind.child, child, child)

    def has_ended(self, child: str) -> bool:
        """Did a child, or another run that tells this one, end since it was looked at?"""
        return child in self._ended_children

    def look_at(self, child: str) -> None:
        """It is looked at now: what was told of it before is no news."""
        self._ended_children.discard(child)
