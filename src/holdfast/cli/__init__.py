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
    "resume": ("resume", "resume_command", "Have runs go on where they were."),
    "retry": ("retry", "retry_command", "Open a failed or cancelled run again."),
    "pause": ("pause", "pause_command", "Stop runs between two calls, until they are resumed."),
    "cancel": ("cancel", "cancel_command", "End runs that are not over; they can clean up first."),
    "runs": ("runs", "runs_command", "List runs, newest first."),
    "show": ("show", "show_command", "Show what happened in a run."),
    "watch": ("watch", "watch_command", "Watch runs as they go on."),
    "send": ("send", "send_command", "Send a signal to a run."),
    "emit": ("emit", "emit_command", "Emit an event, which starts the runs of its triggers."),
    "interrupt": ("interrupt", "interrupt_command", "Interrupt a run with a message; prints what its handler replies."),
    "questions": ("questions", "questions_command", "List what runs ask people; or show one question."),
    "answer": ("answer", "answer_command", "Answer a question that a run asks."),
    "decline": ("decline", "decline_command", "Decline to answer a question; the agent is told so."),
    "in-doubt": ("in_doubt", "in_doubt_command", "List effects that may or may not have happened."),
    "resolve": ("resolve", "resolve_command", "Say what became of an effect in doubt."),
    "worker": ("worker", "worker_command", "Execute runs of the agents in these files until SIGTERM or Ctrl-C."),
    "workers": ("workers", "workers_command", "List the processes that execute runs."),
    "health": ("health", "health_command", "Tell whether the worker that writes FILE is alive; for probes."),
    "queues": ("queues", "queues_command", "List queues, how full they are, and their limits."),
    "schedules": ("schedules", "schedules_command", "List schedules: what starts runs at given times."),
    "fire": ("schedules", "fire_command", "Start a run of a schedule now."),
    "triggers": ("triggers", "triggers_command", "List triggers: what starts runs when something happens."),
    "copy": ("copy", "copy_command", "Copy runs from one store to another, or move them."),
    "prune": ("prune", "prune_command", "Remove what runs did that ended long ago."),
    "retention": ("retention", "retention_command", "List for how long runs are kept; or change it for an agent."),
    "verify": ("verify", "verify_command", "Check every stored byte of runs against its hashes."),
    "migrate": ("migrate", "migrate_command", "Bring the tables of a store up to date."),
    "backup": ("backup", "backup_command", "Write a copy of a SQLite store to a new file, while workers go on."),
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
