"""One worker process, started by itself: `python -m tests.postgres.worker ARGUMENTS`, where no fork can go."""

from __future__ import annotations

import importlib
import json
import sys

from tests.workers import work

if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    importlib.import_module(arguments["agents"])
    work(**arguments)
