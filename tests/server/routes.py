"""Every operation of the API, found in its document: a new one is tested without anybody thinking of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

#: Bodies that the operations take which need one; others take {}.
BODIES: dict[str, Any] = {
    "start_run": {"agent": "echo", "input": {}},
    "act_on_many": {"act": "pause", "ids": ["x"]},
    "interrupt": {"message": "x"},
    "send": {"name": "x"},
    "answer": {"value": True, "shown": "x"},
    "decline": {"shown": "x"},
    "settle": {"verdict": "not_happened", "attempt": 1, "note": "x"},
    "backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
    "emit": {"name": "x"},
    "sign_in": {"token": "x"},
    "make_link": {"audience": "ana"},
    "open_link": {"key": "x"},
    "answer_by_link": {"key": "x", "value": True},
    "decline_by_link": {"key": "x"},
    "change_plan": {"ops": [{"op": "tick", "id": "1"}]},
}
QUERIES = {"download": "seq=1", "stream": "wait=0", "show_difference": "a=1&b=2"}
#: What takes the bytes of a file in the place of JSON.
FILES = {"upload_artifact"}
#: What takes a signature, or the key of a link, in the place of a credential. Whoever signs has no browser.
SIGNED = {"take_delivery"}
LINKS = {"show_link_page", "link_script", "open_link", "answer_by_link", "decline_by_link"}
OPEN = {"health", "sign_in"} | SIGNED | LINKS


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    method: str
    template: str
    role: str | None

    @property
    def path(self) -> str:
        return re.sub(r"\{\w+\}", "x", self.template)

    @property
    def url(self) -> str:
        return f"{self.path}?{QUERIES[self.name]}" if self.name in QUERIES else self.path

    @property
    def is_unsafe(self) -> bool:
        return self.method not in ("GET", "HEAD")

    @property
    def body(self) -> Any:
        return BODIES.get(self.name, {}) if self.method in ("POST", "PUT") else None


def operations(api: FastAPI) -> list[Operation]:
    return [
        Operation(operation["operationId"], method.upper(), path, operation.get("x-role"))
        for path, found in api.openapi()["paths"].items()
        for method, operation in found.items()
    ]
