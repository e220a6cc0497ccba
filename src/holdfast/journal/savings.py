"""What an execution did not have to do again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from holdfast.journal.replay import Entry


@dataclass(slots=True)
class Savings:
    """What an execution answered from the journal, and what that saved."""

    replayed: int = 0
    saved_us: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def text(self, executed: int) -> str:
        """As JSON text, with how many bodies were executed all the same."""
        saved = {name: getattr(self, name) for name in self.__slots__ if name != "replayed"}
        return json.dumps({"replayed": self.replayed, "executed": executed, **saved})

    def answered(self, entry: Entry, usage: dict[str, list[dict[str, Any]]]) -> None:
        assert entry.outcome is not None
        self.replayed += 1
        self.saved_us += entry.outcome.took
        for used in usage.get(entry.key, ()):
            self.input_tokens += used["input_tokens"]
            self.output_tokens += used["output_tokens"]
            self.cost += used["cost"]
