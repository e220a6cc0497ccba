"""`holdfast migrate`"""

from __future__ import annotations

import asyncio

import click

from holdfast.base.config import Settings, store_url
from holdfast.cli.failure import FAILED, OK
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import check_exists
from holdfast.cli.text import clean, to_json
from holdfast.errors import NoStore
from holdfast.history.words import count
from holdfast.model import SchemaStep
from holdfast.store import open_store
from holdfast.store.contract import Store


@command("migrate", here="changes the tables of a store")
@click.option("--check", is_flag=True, help="Only tell; exit code 1 if there is something to do.")
def migrate_command(setup: Setup, check: bool) -> int:
    """Bring the tables of a store up to date.

    Whoever opens a store to write does it anyway; this does nothing else, for a step of its own in a deployment. Each
    migration is one transaction, and one process at a time migrates. Other processes may go on meanwhile.
    """
    check_exists(setup)
    applied, pending = asyncio.run(_migrate(store_url(setup.db), check=check))
    done = [] if check else pending
    left = pending if check else []
    if setup.is_json:
        facts = {"applied": [step.number for step in applied], "done": _facts(done), "pending": _facts(left)}
        print(to_json(facts | {"is_up_to_date": not left}))
    elif left:
        print(clean(f"To do: {_named(left)}. `holdfast migrate` does it.", one_line=True))
    elif done:
        print(clean(f"Applied {count(len(done), 'migration')}: {_named(done)}.", one_line=True))
    else:
        print(f"Up to date: {count(len(applied), 'migration')}.")
    return FAILED if left else OK


async def _migrate(url: str, *, check: bool) -> tuple[list[SchemaStep], list[SchemaStep]]:
    """What was applied before, and what was not; unless it is only a check, it is by now."""
    known: list[SchemaStep] | None = None
    try:
        known = await _steps(url, read_only=True)
    except NoStore:
        if check:
            return [], open_store(url, settings=Settings()).known_schema()
    after = known if check else await _steps(url, read_only=False)
    assert after is not None
    before = {step.number for step in known or () if step.applied_at is not None}
    return [step for step in after if step.number in before], [step for step in after if step.number not in before]


async def _steps(url: str, *, read_only: bool) -> list[SchemaStep]:
    store: Store = open_store(url, settings=Settings())
    await store.open(read_only=read_only)
    try:
        return await store.schema()
    finally:
        await store.close()


def _named(steps: list[SchemaStep]) -> str:
    return ", ".join(f"{step.number} {step.name}" for step in steps)


def _facts(steps: list[SchemaStep]) -> list[dict[str, object]]:
    return [{"number": step.number, "name": step.name} for step in steps]
