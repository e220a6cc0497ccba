"""What Holdfast tells operators while it runs, through the standard `logging` under the name `holdfast`."""

from __future__ import annotations

import logging

log = logging.getLogger("holdfast")


def warn(event: str, **fields: object) -> None:
    """Log a warning that both people and machines can read.

    The message is `event key=value …`; handlers find the parts in `record.event` and `record.fields`.
    """
    if not log.isEnabledFor(logging.WARNING):
        return
    text = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
    # As an argument, not as the format: a value may contain a percent sign.
    log.warning("%s", event + text, extra={"event": event, "fields": fields}, stacklevel=2)


def _shown(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and text and not any(mark in text for mark in " =\"'")
    return text if plain else repr(text)
