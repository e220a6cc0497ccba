"""The command line. Commands are imported when they are used, so that the others start fast.

stdout carries data, stderr everything else. A command returns its exit code; errors become one in `failure.py`.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from holdfast.base.hints import hint
from holdfast.cli.failure import report
from holdfast.cli.setup import Setup, common_options
from holdfast.version import VERSION

#: name: (module, object, what it does)
COMMANDS = {
    "run": ("run", "run_command", "Execute an agent, or go on with the run that has this id."),
    "resume": ("resume", "resume_command", "Have runs go on where they were."),
    "retry": ("retry", "retry_command", "Open a failed or cancelled run again."),
    "fork": ("fork", "fork_command", "Make a new run of what a run had done by a record."),
    "pause": ("pause", "pause_command", "Stop runs between two calls, until they are resumed."),
    "cancel": ("cancel", "cancel_command", "End runs that are not over; they can clean up first."),
    "runs": ("runs", "runs_command", "List runs, newest first."),
    "show": ("show", "show_command", "Show what happened in a run."),
    "watch": ("watch", "watch_command", "Watch runs as they go on."),
    "console": (
        "console",
        "console_command",
        "Look at a store in the browser: what needs you, what happened and why; answer, settle, pause and retry.",
    ),
    "receipt": ("receipt", "receipt_command", "Show what each resume saved, and what had changed meanwhile."),
    "activity": ("activity", "activity_command", "List what people did, newest first."),
    "checkpoints": ("checkpoints", "checkpoints_command", "List the turns of a run, and the sizes of their states."),
    "state": ("checkpoints", "state_command", "Print the state that a turn of a run began with."),
    "diff": ("checkpoints", "diff_command", "Show what differs between the states of two turns of a run."),
    "plan": ("plan", "plan_command", "Show the plan of a run as todo.md; or change it."),
    "artifacts": ("artifacts", "artifacts_command", "List what a run has put out, save some of it, or give it a file."),
    "stream": ("stream", "stream_command", "Print what bodies of a run write with `hf.stream`."),
    "thread": ("thread", "thread_command", "Print what was said in a thread."),
    "send": ("send", "send_command", "Send a signal to a run."),
    "emit": ("emit", "emit_command", "Emit an event, which starts the runs of its triggers."),
    "interrupt": ("interrupt", "interrupt_command", "Interrupt a run with a message; prints what its handler replies."),
    "questions": ("questions", "questions_command", "List what runs ask people; or show one question."),
    "answer": ("answer", "answer_command", "Answer a question that a run asks."),
    "decline": ("decline", "decline_command", "Decline to answer a question; the agent is told so."),
    "in-doubt": ("in_doubt", "in_doubt_command", "List effects that may or may not have happened."),
    "resolve": ("resolve", "resolve_command", "Say what became of an effect in doubt."),
    "worker": ("worker", "worker_command", "Execute runs of the agents in these files until SIGTERM or Ctrl-C."),
    "serve": (
        "serve",
        "serve_command",
        "Serve the console and the HTTP API of the store, to this host alone unless told otherwise.",
    ),
    "workers": ("workers", "workers_command", "List the processes that execute runs."),
    "health": ("health", "health_command", "Tell whether the worker that writes FILE is alive; for probes."),
    "queues": ("queues", "queues_command", "List queues, how full they are, and their limits."),
    "schedules": ("schedules", "schedules_command", "List schedules: what starts runs at given times."),
    "fire": ("schedules", "fire_command", "Start a run of a schedule now."),
    "triggers": ("triggers", "triggers_command", "List triggers: what starts runs when something happens."),
    "check": ("check", "check_command", "Tell which unfinished runs go on with the code as it is now."),
    "copy": ("copy", "copy_command", "Copy runs from one store to another, or move them."),
    "prune": ("prune", "prune_command", "Remove what runs did that ended long ago."),
    "retention": ("retention", "retention_command", "List for how long runs are kept; or change it for an agent."),
    "verify": ("verify", "verify_command", "Check every stored byte of runs against its hashes."),
    "repair": ("repair", "repair_command", "Sign runs anew that were changed outside Holdfast, in another store."),
    "migrate": ("migrate", "migrate_command", "Bring the tables of a store up to date."),
    "backup": ("backup", "backup_command", "Write a copy of a SQLite store to a new file, while workers go on."),
    "doctor": ("doctor", "doctor_command", "Check this installation and its store."),
    "demo": ("demo", "demo_command", "Watch an agent being killed and going on."),
    "completion": ("completion", "completion_command", "Print the completion script for a shell."),
    "version": ("version", "version_command", "Print the version."),
}

#: The commands by what they are for; what the list of commands looks like.
SECTIONS = {
    "Execute runs": ("run", "resume", "retry", "fork", "pause", "cancel"),
    "Look at runs": (
        "runs",
        "show",
        "watch",
        "console",
        "receipt",
        "activity",
        "checkpoints",
        "state",
        "diff",
        "plan",
        "artifacts",
        "stream",
        "thread",
    ),
    "Tell runs something": ("send", "emit", "interrupt"),
    "Decide what runs ask": ("questions", "answer", "decline", "in-doubt", "resolve"),
    "Workers, and what starts runs": (
        "worker",
        "serve",
        "workers",
        "health",
        "queues",
        "schedules",
        "fire",
        "triggers",
        "check",
    ),
    "Look after the store": ("copy", "prune", "retention", "verify", "repair", "migrate", "backup"),
    "This installation": ("doctor", "demo", "completion", "version"),
}

#: What the same thing is called elsewhere.
OTHER_WORDS: dict[str, tuple[str, ...]] = {
    "start": ("run", "worker"),
    "server": ("serve", "console"),
    "ui": ("console",),
    "dashboard": ("console",),
    "browser": ("console",),
    "web": ("console", "serve"),
    "http": ("serve",),
    "api": ("serve",),
    "exec": ("run",),
    "execute": ("run",),
    "list": ("runs",),
    "ls": ("runs",),
    "ps": ("runs", "workers"),
    "status": ("show", "runs"),
    "history": ("show",),
    "todo": ("plan",),
    "log": ("show",),
    "logs": ("show",),
    "tail": ("watch",),
    "stop": ("pause", "cancel"),
    "kill": ("cancel",),
    "continue": ("resume",),
    "signal": ("send",),
    "approve": ("answer",),
    "reject": ("answer", "decline"),
    "ask": ("questions",),
    "doubts": ("in-doubt",),
    "settle": ("resolve",),
    "cron": ("schedules",),
    "delete": ("prune",),
    "rm": ("prune",),
    "upgrade": ("migrate",),
    "move": ("copy",),
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
            found = import_module(f"holdfast.cli.commands.{module}")
        except ModuleNotFoundError as error:
            raise click.UsageError(f"`holdfast {cmd_name}` is not part of this installation ({error}).") from error
        command = getattr(found, name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise click.UsageError(f"There is no command {args[0]!r}.{_meant(args)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), COMMANDS[name][2]) for name in names])


def _meant(args: Sequence[str]) -> str:
    """What somebody meant who typed something that is no command: the nearest ones, or `run` for a file."""
    given = args[0]
    if given == "help":
        return " All commands: holdfast --help; one: holdfast COMMAND --help"
    if given.partition(":")[0].endswith(".py"):
        return f" To execute the agent in a file: {hint('run', *args)}"
    word = given.lower().replace("_", "-")
    known = {**{name: (name,) for name in COMMANDS}, **OTHER_WORDS}
    begun = [name for name in COMMANDS if len(word) > 1 and name.startswith(word)]
    found = [word] if word in known else begun[:2] or difflib.get_close_matches(word, known, n=2, cutoff=0.6)
    near = dict.fromkeys(name for each in found for name in known[each])
    return f" Did you mean {' or '.join(f'`{hint(name)}`' for name in near)}?" if near else ""


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print(f"holdfast {VERSION}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    params=[
        *common_options(),
        click.Option(
            ["--version"], is_flag=True, expose_value=False, callback=_print_version, help="Print the version and exit."
        ),
    ],
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
