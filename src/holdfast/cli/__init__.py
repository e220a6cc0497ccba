"""The command line. Commands are imported when they are used, so that the others start fast.

stdout carries data, stderr everything else. A command returns its exit code; errors become one in `failure.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from holdfast.cli.failure import report
from holdfast.cli.setup import Setup, common_options

#: name: (module, object, what it does)
COMMANDS = {
    "run": ("run", "run_command", "Execute an agent, or go on with the run that has this id."),
    "resume": ("resume", "resume_command", "Have a run go on where it was."),
    "runs": ("runs", "runs_command", "List runs, newest first."),
    "show": ("show", "show_command", "Show what happened in a run."),
    "in-doubt": ("in_doubt", "in_doubt_command", "List effects that may or may not have happened."),
    "resolve": ("resolve", "resolve_command", "Say what became of an effect in doubt."),
    "verify": ("verify", "verify_command", "Check every stored byte of runs against its hashes."),
    "doctor": ("doctor", "doctor_command", "Check this installation and its store."),
    "demo": ("demo", "demo_command", "Watch an agent being killed and going on."),
    "completion": ("completion", "completion_command", "Print the completion script for a shell."),
    "version": ("version", "version_command", "Print the version."),
}


class LazyGroup(click.Group):
    """Knows the names and one line about each command; imports the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        try:
            found = import_module(f"holdfast.cli.{module}")
        except ModuleNotFoundError as error:
            raise click.UsageError(f"`holdfast {cmd_name}` is not part of this installation ({error}).") from error
        command = getattr(found, name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, _, about) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    params=common_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 not found, 5 conflict, 6 integrity failure, "
    "7 a person is needed, 8 an effect is in doubt, 124 --timeout, 130 Ctrl-C.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Durable AI agents: killed at step 47, they go on at step 47.

    RUN is the id of a run, a unique beginning of it, a token, or @last.
    """
    ctx.ensure_object(Setup)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of `holdfast` and `python -m holdfast`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that cannot show a character is no reason to fail
    setup = Setup()
    try:
        code = cli.main(arguments, prog_name="holdfast", standalone_mode=False, obj=setup)
    except (Exception, KeyboardInterrupt) as error:  # the last place that can tell the user
        code = report(error, setup)
    exit_with(code if isinstance(code, int) else 0)


def exit_with(code: int) -> NoReturn:
    """Leave without waiting for threads: a `def` step that was cut off must not keep the process."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more
        os._exit(code or 1)
    os._exit(code)
