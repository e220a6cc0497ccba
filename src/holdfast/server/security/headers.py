"""Headers of every response, errors included."""

from __future__ import annotations

from typing import Final

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
#: For what a run stored: nothing in it is executed, wherever it is opened.
SANDBOX: Final = "sandbox; default-src 'none'; frame-ancestors 'none'"

HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def with_defaults(given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response, and those of ours that it does not have."""
    known = {name.lower() for name, _ in given}
    missing = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in known]
    return [*given, *missing]
