"""`holdfast health`"""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.durations import seconds
from holdfast.cli.failure import FAILED, OK
from holdfast.cli.heartbeat import Beat
from holdfast.cli.setup import Setup, command
from holdfast.cli.text import clean, to_json
from holdfast.history.words import duration


@command("health")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--max-age",
    "max_age_s",
    callback=seconds,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How long ago its last sign of life may be.",
)
def health_command(setup: Setup, file: Path, max_age_s: float) -> int:
    """Tell whether the worker that writes FILE is alive; for probes.

    FILE is what `holdfast worker --heartbeat FILE` writes whenever the store has answered the renewal of its lease.
    Exit code 1: it is too old, or not there. No store is opened.

    \b
    holdfast worker agents.py --heartbeat /tmp/heartbeat
    holdfast health /tmp/heartbeat --max-age 90s
    """
    problem, age_s, pid = _look(file, max_age_s)
    if setup.is_json:
        print(to_json({"is_alive": not problem, "age_s": age_s, "pid": pid, "problem": problem or None}))
    else:
        print(clean(problem or f"alive: pid {pid}, a sign of life {duration(age_s or 0)} ago", one_line=True))
    return FAILED if problem else OK


def _look(file: Path, max_age_s: float) -> tuple[str, float | None, int | None]:
    """What is wrong, if anything; the age of the last sign, and whose it is."""
    try:
        beat = Beat.read(file)
    except FileNotFoundError:
        return f"there is no {file}: no worker writes it, or it has ended", None, None
    except (OSError, ValueError) as error:
        return f"{file} cannot be read: {error}", None, None
    age_s = beat.age_s()
    if age_s is None:
        return f"the last sign of life of pid {beat.pid} is from before the machine was started", None, beat.pid
    if age_s > max_age_s:
        return f"no sign of life of pid {beat.pid} for {duration(age_s)}", round(age_s, 1), beat.pid
    return "", round(max(age_s, 0.0), 1), beat.pid
