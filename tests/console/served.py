"""A console in a process of its own, which can be killed and started again under the same address."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Served:
    def __init__(self, url: str, *options: str) -> None:
        self.url = url
        self._options = options
        self.port = 0
        self.token = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "serve", "--port", str(self.port), "--json", *self._options],
            env=os.environ | {"HOLDFAST_URL": self.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        address, _, self.token = told["url"].partition("/#t=")
        self.port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def at(self, path: str = "/") -> str:
        """An address that signs in."""
        return f"{self.bare(path)}#t={self.token}"

    def bare(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 400, text
            return json.loads(text)
        finally:
            connection.close()


def start_run(served: Served, agent: str, run_id: str, **given: Any) -> str:
    """Have a run started through the API."""
    served.ask("POST", "/runs", {"agent": agent, "id": run_id, "input": given})
    return run_id


def store_in(folder: Path) -> str:
    return str(folder / "acme.db")
