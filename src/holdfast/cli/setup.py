"""What all commands share: which store, how to print. Given before or after the command's name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from holdfast.base.config import has_password
from holdfast.base.hints import about_store

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Setup:
    """The common options of one invocation."""

    db: str | None = None
    json: bool = False
    no_color: bool = False

    @property
    def is_json(self) -> bool:
        return self.json or os.environ.get("HOLDFAST_OUTPUT", "").lower() == "json"

    @property
    def is_table(self) -> bool:
        """A person looks at stdout."""
        return not self.is_json and sys.stdout.isatty()

    def has_color(self, stream: Any) -> bool:
        if self.no_color or os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if parameter.name == "db" and (value or ctx.parent is None):
        about_store(value)
    if value:
        assert parameter.name is not None
        if parameter.name == "db" and not ctx.resilient_parsing:
            warn_of_password("--db", value)
        setattr(ctx.ensure_object(Setup), parameter.name, value)


def warn_of_password(what: str, *urls: str) -> None:
    """Tell who typed a password that others can read it."""
    if any(map(has_password, urls)):
        print(
            f"warning: the password in {what} can be read by all users of this machine, in the list of processes. Give "
            "the url in HOLDFAST_URL, or leave the password to PGPASSWORD or ~/.pgpass.",
            file=sys.stderr,
        )


def common_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--db"],
            metavar="URL",
            expose_value=False,
            callback=_keep,
            help="Path, sqlite:///PATH or postgresql://… of the store. "
            "[env: HOLDFAST_URL; default: .holdfast/holdfast.db]",
        ),
        click.Option(
            ["--json"], is_flag=True, expose_value=False, callback=_keep, help="Print JSON. [env: HOLDFAST_OUTPUT=json]"
        ),
        click.Option(
            ["--no-color"], is_flag=True, expose_value=False, callback=_keep, help="No colours. [env: NO_COLOR]"
        ),
    ]


def status_option(statuses: Iterable[str], about: str) -> Callable[[F], F]:
    """Give a command --status; the values stand in the help as words, since one long word does not fit a terminal."""
    values = list(statuses)
    return click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice(values),
        metavar="STATUS",
        help=f"{about}; may be repeated: {', '.join(values)}.",
    )


class Command(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()


def command(name: str) -> Callable[[Callable[..., int | None]], Command]:
    """Make a function a command; it gets the `Setup` first and returns its exit code."""

    def decorate(function: Callable[..., int | None]) -> Command:
        return click.command(name, cls=Command)(click.make_pass_decorator(Setup, ensure=True)(function))

    return decorate
