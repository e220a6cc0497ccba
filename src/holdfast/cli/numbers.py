"""Whole numbers that are typed."""

from __future__ import annotations

import click


class Number(click.IntRange):
    """A whole number within bounds, which a message and `--help` call so."""

    name = "number"
