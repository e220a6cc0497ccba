"""JSON answers: in ASCII, so that nothing that a run has stored can break one."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import Response


class Answer(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        except ValueError:  # a run may count to infinity
            text = json.dumps(_finite(content), separators=(",", ":"))
        return text.encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
