"""Asking the person at the terminal; where there is none, saying what to pass instead."""

from __future__ import annotations

import sys

import click

from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.text import clean


def can_ask() -> bool:
    """Is there somebody to ask?"""
    return sys.stdin.isatty()


def confirm(question: str) -> None:
    """Go on only if the person says yes; without a terminal, the flag that says so is named."""
    if not can_ask():
        raise Failure(f"{question} Nobody can be asked here; pass --yes if you are sure.", USAGE)
    if not click.confirm(clean(question), err=True):
        raise Failure("Nothing was changed.")
