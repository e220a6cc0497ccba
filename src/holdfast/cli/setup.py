"""What all commands share: which store, how to print. Given before or after the command's name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from holdfast.base.config import URL, has_password, is_server
from holdfast.base.hints import about_store

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Setup:
    """The common options of one invocation."""

    db: str | None = None
    url: str | None = None
    json: bool = False
    no_color: bool = False
    acts_for: str | None = None  #: the name that --by gave

    @property
    def served(self) -> str | None:
        """The url of the server, if it is one that is asked, and no store."""
        named = self.db or os.environ.get(URL) or ""
        return named if is_server(named) else None

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
    assert parameter.name is not None
    is_place = parameter.name in ("db", "url")
    setup = ctx.ensure_object(Setup)
    if is_place and (value or (ctx.parent is None and not setup.db)):
        about_store(value)
    if not value:
        return
    if is_place and not ctx.resilient_parsing:
        warn_of_password(f"--{parameter.name}", value)
    if parameter.name == "url" and not is_server(value):
        raise click.BadParameter("a server is http://HOST:PORT or https://HOST; --db names a store.", ctx, parameter)
    if is_place and setup.db and bool(setup.url) is not (parameter.name == "url"):
        raise click.UsageError("Give --db, which names a store, or --url, which names a server; not both.", ctx)
    setattr(setup, parameter.name, value)
    setup.db = setup.url or setup.db


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
            ["--url"],
            metavar="URL",
            expose_value=False,
            callback=_keep,
            help="http://… or https://… of a server (holdfast serve), instead of a store. Its token: HOLDFAST_TOKEN.",
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
    """A command with the common options. `here`: why it cannot be had from a server, if it cannot."""

    def __init__(self, *args: Any, here: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()
        self._here = here

    def invoke(self, ctx: click.Context) -> Any:
        setup = ctx.ensure_object(Setup)
        if self._here and setup.served is not None:
            raise click.UsageError(f"`holdfast {self.name}` {self._here}; name the store with --db, not a server.")
        if setup.acts_for is not None and setup.served is not None:
            raise click.UsageError("A server knows who acts by the token; --by is for a store (--db).")
        return super().invoke(ctx)


def command(name: str, *, here: str = "") -> Callable[[Callable[..., int | None]], Command]:
    """Make a function a command; it gets the `Setup` first and returns its exit code.

    `here`: what it does that no server does for it, as in `executes runs in this process`.
    """

    def decorate(function: Callable[..., int | None]) -> Command:
        return click.command(name, cls=Command, here=here)(click.make_pass_decorator(Setup, ensure=True)(function))

    return decorate
