"""What is known of an effect in doubt, in words: how its attempt ended, and why that proves nothing.

Evidence is a mapping that is stored with the settlement: `cause` (crash, exception, timeout), `error` (its type and
text), `raised` (its type, if it can be declared), `at` (file:line of the user's code), what `verify` said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What stays known of an attempt when the run is taken up again.
KEPT = ("cause", "error", "raised", "at")


def how_it_ended(evidence: Mapping[str, Any]) -> str:
    """`it raised OSError: no route (pay.py:17), and an exception is no proof that nothing happened`"""
    error, at = evidence.get("error"), f" ({evidence['at']})" if evidence.get("at") else ""
    match evidence.get("cause"):
        case "exception" | "timeout" if error:
            return f"it raised {error}{at}, and an exception is no proof that nothing happened"
        case "crash":
            return "it was cut off, and nobody can tell whether it happened"
        case _:
            return f"{error or evidence.get('cause', 'unknown')}{at}; nobody can tell whether it happened"


def how_verify_failed(evidence: Mapping[str, Any]) -> str:
    """`Its verify failed: TypeError: …`; nothing where it said something, or there is none."""
    error = evidence.get("verify_error")
    return f"Its verify failed: {error}." if error else ""


def how_to_declare(evidence: Mapping[str, Any]) -> str:
    """What to change if the exception does prove it; nothing where it is none that can be declared."""
    name = evidence.get("raised")
    if not name:
        return ""
    return f"If {name} always means that nothing happened, declare it: @hf.effect(raises=({name},))."
