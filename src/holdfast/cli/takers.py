"""Telling that nobody takes up a run that could go on."""

from __future__ import annotations

import sys

from holdfast.app import Holdfast
from holdfast.cli.text import folded
from holdfast.history.takers import untaken
from holdfast.model import RunId


async def advice_for(app: Holdfast, run_id: str) -> str:
    """What to do if the run could go on and nothing will happen by itself; else nothing."""
    found = await untaken(app._here.store, RunId(run_id))
    return "" if found is None else found.text


def tell(advice: str) -> None:
    if advice:
        print(folded(advice, sys.stderr), file=sys.stderr)
