"""What an execution did not have to do again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from holdfast.journal.replay import Entry


@dataclass(slots=True)
class Receipt:
    """What an execution answered from the journal, what it executed, and what that saved."""

    replayed: int = 0
    executed: int = 0
    saved_us: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    @property
    def text(self) -> str:
        """As JSON text."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    def answered(self, entry: Entry, usage: dict[str, list[dict[str, Any]]]) -> None:
        assert entry.outcome is not None
        self.replayed += 1
        self.saved_us += entry.outcome.took
        for used in usage.get(entry.key, ()):
            self.input_tokens += used["input_tokens"]
            self.output_tokens += used["output_tokens"]
            self.cost += used["cost"]
