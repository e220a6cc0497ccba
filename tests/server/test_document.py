"""The OpenAPI document: complete, with examples, and checked in.

UPDATE_DOCS=1 python -m pytest tests/server/test_document.py       writes it anew
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.server.document import document
from holdfast.server.problems import KINDS

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_document_is_the_one_that_is_checked_in() -> None:
    made = json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        FILE.write_text(made, "utf-8")
    assert FILE.read_text("utf-8") == made


def operations() -> list[dict[str, Any]]:
    return [operation for path in document()["paths"].values() for operation in path.values()]


def test_every_operation_says_what_it_does_who_may_and_what_goes_wrong() -> None:
    for operation in operations():
        name = operation["operationId"]
        assert operation["summary"], name
        assert operation["tags"], name
        assert ("x-role" in operation) != (operation.get("security") == []), name
        good = [status for status in operation["responses"] if status.startswith("2")]
        assert good, name
        told = operation["responses"]
        for status, response in told.items():
            if not status.startswith("2"):
                assert response["content"]["application/problem+json"]["examples"], (name, status)
        if operation.get("x-role"):
            assert "401" in told, name


def test_every_problem_that_a_client_can_cause_is_said_by_some_operation() -> None:
    text = json.dumps([operation["responses"] for operation in operations()])
    of_every_request = {"no_such_page", "method", "too_slow", "internal", "store_away"}
    assert {kind for kind in KINDS if f'examples/{kind}"' not in text} <= of_every_request


def test_nothing_of_it_is_loaded_by_who_does_not_serve() -> None:
    code = (
        "import sys, holdfast as hf; hf.connect; from holdfast.cli import cli, COMMANDS\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('fastapi', 'starlette', 'uvicorn')"
        " or name.startswith('holdfast.server')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
