"""What Holdfast tells operators while it runs, through the standard `logging` under the name `holdfast`."""

from __future__ import annotations

import logging

from holdfast.base.secrets import SECRETS

log = logging.getLogger("holdfast")


def warn(event: str, **fields: object) -> None:
    """Log a warning that both people and machines can read.

    The message is `event key=value …`; handlers find the parts in `record.event` and `record.fields`.
    """
    _log(logging.WARNING, event, fields)


def info(event: str, **fields: object) -> None:
    """Log something that is no reason to worry, in the same form; not shown unless somebody asks for it."""
    _log(logging.INFO, event, fields)


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    if not log.isEnabledFor(level):
        return
    if SECRETS.is_any:
        fields = {name: _kept(value) for name, value in fields.items()}
    text = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
    # As an argument, not as the format: a value may contain a percent sign.
    log.log(level, "%s", event + text, extra={"event": event, "fields": fields}, stacklevel=3)


def _kept(value: object) -> object:
    text = str(value)
    kept = SECRETS.without(text)
    return value if kept == text else kept


def _shown(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and text and not any(mark in text for mark in " =\"'")
    return text if plain else repr(text)
