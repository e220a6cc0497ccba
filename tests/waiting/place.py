"""Where the agents of these tests wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import workers
from tests.nursery import Nursery
from tests.waiting import agents

FOLDER = "HOLDFAST_TEST_FOLDER"


class Place(workers.Place):
    """A folder with a store, an outside world, and workers."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        super().__init__(folder, nursery, agents=agents.__name__, settings={"sweep_s": 0.1})
        self.env[FOLDER] = str(folder)

    def done(self, what: str | None = None) -> list[Any]:
        """What bodies did to the world, in order."""
        path = self.folder / "world.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line["value"] for line in lines if what in (None, line["what"])]
