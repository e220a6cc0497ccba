"""Who acts through a command, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.cli.setup import Setup
from holdfast.control.acting import actor
from holdfast.model import Actor, Via

F = TypeVar("F", bound=Callable[..., Any])


def by_option(about: str = "Who does it") -> Callable[[F], F]:
    """Give a command --by: somebody who acts by the command line."""
    return click.option(
        "--by", metavar="NAME", callback=_in_person, help=f"{about}. [default: the user of this process]"
    )


def actor_options(function: F) -> F:
    """Give a command --note and --by."""
    note = click.option("--note", default="", metavar="TEXT", help="Why; kept with what is done.")
    return note(by_option()(function))


def _in_person(context: click.Context, parameter: click.Parameter, given: str | None) -> Actor:
    if given is not None:
        context.ensure_object(Setup).acts_for = given
    return Actor.of(actor(given), Via.cli)
