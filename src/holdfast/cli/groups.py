"""Commands that have commands of their own: `holdfast queues` lists, `holdfast queues pause NAME` acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.setup import Command, Setup, command, common_options


class Group(click.Group):
    """Lists when no command is given; takes the common options in every place."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "invoke_without_command": True})
        self.params += common_options()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        about = {name: (each.help or "").partition("\n")[0] for name, each in sorted(self.commands.items())}
        with formatter.section("Commands"):
            formatter.write_dl(list(about.items()))

    def act(self, name: str) -> Callable[[Callable[..., int | None]], Command]:
        """Make a function one of the group's commands."""

        def decorate(function: Callable[..., int | None]) -> Command:
            made = command(name)(function)
            self.add_command(made)
            return made

        return decorate


def group(name: str) -> Callable[[Callable[[Setup], int]], Group]:
    """Make a function that lists a group; it is also the group's command `ls`."""

    def decorate(function: Callable[[Setup], int]) -> Group:
        @click.pass_context
        def listing(ctx: click.Context) -> int:
            return function(ctx.ensure_object(Setup)) if ctx.invoked_subcommand is None else 0

        listing.__doc__ = function.__doc__
        made: Group = click.group(name, cls=Group)(listing)

        def ls(setup: Setup) -> int:
            return function(setup)

        ls.__doc__ = "List them; the same as without a command."
        made.act("ls")(ls)
        return made

    return decorate
