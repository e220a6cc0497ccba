"""What can start runs from outside, and what their agents get. An event is named by a plain `str`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.codec import digest
from holdfast.errors import UsageError

Change = Literal["created", "changed", "deleted"]
#: What a url begins with that is taken from the environment of the worker.
_ENVIRONMENT: Final = "env:"
KINDS: Final[tuple[Change, ...]] = ("created", "changed", "deleted")


@dataclass(frozen=True, slots=True)
class FileChange:
    """Files whose changes start runs: `app.on(hf.FileChange("inbox/*.pdf"), read_invoice)`.

    `pattern` is a glob, relative to the current folder or absolute; `**` stands for any number of folders, and `*` does
    not match a leading dot. A file is reported once it has not changed for `settle` seconds, and only if its content is
    another one. Files that are there when the trigger is declared count as known, unless `existing`. Files of more than
    `max_size` bytes are not read, and not reported; None: all are. Links are not followed, unless `links`.

    Example: `hf.FileChange("notes/**/*.md", kinds=("created", "changed", "deleted"))`
    """

    pattern: str
    settle: float = field(default=1.0, kw_only=True)
    kinds: tuple[Change, ...] = field(default=("created", "changed"), kw_only=True)
    existing: bool = field(default=False, kw_only=True)
    max_size: int | None = field(default=1 << 30, kw_only=True)
    links: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        pattern = os.fspath(self.pattern)
        if not isinstance(pattern, str) or not pattern or "\0" in pattern or pattern.endswith(os.sep):
            raise UsageError(f"FileChange takes a pattern of files, such as 'inbox/*.pdf'; got {self.pattern!r}.")
        if isinstance(self.settle, bool) or not isinstance(self.settle, int | float) or not 0 <= self.settle < 86_400:
            raise UsageError(f"FileChange: settle= takes seconds, less than a day; got {self.settle!r}.")
        if not isinstance(self.kinds, tuple | list) or not self.kinds or not set(self.kinds) <= set(KINDS):
            raise UsageError(f"FileChange: kinds= takes some of {', '.join(map(repr, KINDS))}; got {self.kinds!r}.")
        size = self.max_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise UsageError(f"FileChange: max_size= takes a number of bytes, or None; got {size!r}.")


@dataclass(frozen=True, slots=True)
class NatsQueue:
    """A durable consumer of a NATS JetStream stream: each message starts one run.

    A message is acknowledged after its run is stored; one that comes again does not start a second run. The stream must
    exist; the consumer `durable` is created if it does not. `ack_wait` is how long the server waits before it gives a
    message to another worker. `url` may be `"env:NAME"`: each worker takes it from its environment then, so that no
    password is stored with the trigger.

    Example: `hf.NatsQueue("nats://localhost:4222", stream="ORDERS", subject="orders.new", durable="holdfast")`
    """

    url: str
    stream: str = field(kw_only=True)
    subject: str = field(kw_only=True)
    durable: str = field(kw_only=True)
    ack_wait: float = field(default=30.0, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("url", "stream", "subject", "durable"):
            given = getattr(self, name)
            if not isinstance(given, str) or not given or not given.isprintable() or " " in given:
                raise UsageError(f"NatsQueue: {name}= takes text without blanks; got {given!r}.")
        if self.url.startswith(_ENVIRONMENT) and not re.fullmatch(r"[A-Za-z_]\w*", self.url[len(_ENVIRONMENT) :]):
            raise UsageError(f"NatsQueue: url='env:NAME' names a variable of the environment; got {self.url!r}.")
        for name in ("stream", "durable"):
            if re.search(r"[.*>/\\]", getattr(self, name)):
                raise UsageError(f"NatsQueue: {name}={getattr(self, name)!r} must not have any of . * > / \\ in it.")
        if isinstance(self.ack_wait, bool) or not isinstance(self.ack_wait, int | float) or not self.ack_wait > 0:
            raise UsageError(f"NatsQueue: ack_wait= takes seconds; got {self.ack_wait!r}.")


Source = str | FileChange | NatsQueue


@dataclass(frozen=True, slots=True)
class FileEvent:
    """What happened to a file: the input of an agent that a `FileChange` starts.

    `digest` stands for the content that was seen; the file may have changed since. Of a deleted file, `digest` and
    `size` are those it had.

    Example: `async def read_invoice(event: hf.FileEvent) -> None: ...`
    """

    path: str
    change: Change
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class NatsMessage:
    """A message from NATS: the input of an agent that a `NatsQueue` starts.

    `data` is what the JSON of the message says, or its text, or its bytes if it is neither. `sequence` is its number in
    the stream.

    Example: `async def take_order(message: hf.NatsMessage) -> None: ...`
    """

    subject: str
    data: Any
    headers: dict[str, str]
    sequence: int


def described(source: Source) -> tuple[str, dict[str, Any]]:
    """Kind and stored configuration of a source; UsageError if it is none."""
    match source:
        case str():
            return "event", {"event": checked_event(source)}
        case FileChange():
            pattern = os.path.abspath(os.path.expanduser(os.fspath(source.pattern)))
            kinds = [kind for kind in KINDS if kind in source.kinds]
            return "file", {
                "pattern": pattern,
                "settle": float(source.settle),
                "kinds": kinds,
                "existing": bool(source.existing),
                "max_size": source.max_size,
                "links": bool(source.links),
            }
        case NatsQueue():
            parts = {"url": source.url, "stream": source.stream, "subject": source.subject, "durable": source.durable}
            return "nats", {**parts, "ack_wait": float(source.ack_wait)}
        case _:
            raise UsageError(
                f"A trigger is on the name of an event, an hf.FileChange or an hf.NatsQueue; got {source!r}."
            )


def subject_of(kind: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a trigger listens to: with another subject it is another trigger, whatever its name."""
    names = {"event": ("event",), "file": ("pattern",), "nats": ("url", "stream", "subject", "durable")}
    return (kind, *(str(config[name]) for name in names[kind]))


def default_name(kind: str, config: Mapping[str, Any], agent: str) -> str:
    """The name of a trigger that was given none; the same whenever it is declared."""
    plain = {"event": "event", "file": "pattern", "nats": "durable"}[kind]
    subject = subject_of(kind, config)
    slug = re.sub(r"\W+", "-", str(config[plain])).strip("-")[-24:].strip("-") or kind
    return f"{agent[:40]}-{slug}-{digest('/'.join((agent, *subject)))[:6]}"


def checked_event(name: str) -> str:
    """The name of an event; UsageError if it cannot be one."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable() or name != name.strip():
        raise UsageError(f"The name of an event is 1 to 200 printable characters; got {name!r}.")
    return name


def resolved(url: str) -> str:
    """The url itself; OSError if it is to be taken from the environment, which has none."""
    if not url.startswith(_ENVIRONMENT):
        return url
    name = url[len(_ENVIRONMENT) :]
    found = os.environ.get(name, "").strip()
    if not found:
        raise OSError(f"the url of the trigger is in ${name}, which this worker has not in its environment; set it")
    return found


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it may be shown: the password in a url is left out."""
    shown = dict(config)
    if "url" in shown:
        shown["url"] = ",".join(_without_login(each) for each in str(shown["url"]).split(","))
    return shown


def _without_login(url: str) -> str:
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}…@{rest.rpartition('@')[2]}" if "@" in rest else url
