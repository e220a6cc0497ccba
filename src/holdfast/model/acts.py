"""Acts: what people do to runs and to what starts them, and by what way."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from holdfast.base.data import data
from holdfast.model.runs import RunId


class Via(StrEnum):
    """By what way somebody acted."""

    web = "web"
    api = "api"
    cli = "cli"
    link = "link"  #: a link that lets whoever has it decide one question
    code = "code"


class Actor(str):
    """The name of somebody who acts, and by what way they do: their acts are kept with the store."""

    via: Via

    @classmethod
    def of(cls, name: str, via: Via) -> Self:
        made = cls(name)
        made.via = via
        return made


@data
class Act:
    """Something that somebody did."""

    at: int
    by: str
    via: Via
    what: str  #: pause, answer, schedule remove, …
    target: str  #: the run, question, schedule, … it was done to
    run_id: RunId | None
    note: str


@data
class ActFilter:
    """Which acts to list, newest first; None means any."""

    run_id: RunId | None = None
    by: str | None = None
    since: int | None = None
    before: tuple[int, int] | None = None  #: cursor: those listed after this one (at, number)
    limit: int = 50
