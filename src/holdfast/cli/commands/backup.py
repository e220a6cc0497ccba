"""`holdfast backup`"""

from __future__ import annotations

import os

import click

from holdfast.cli.failure import OK
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import with_store
from holdfast.cli.text import clean, to_json
from holdfast.history.words import size
from holdfast.store.contract import Store


@command("backup", here="copies the file of a store")
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False))
def backup_command(setup: Setup, target: str) -> int:
    """Write a copy of a SQLite store to a new file, while workers go on.

    The copy is of one moment, checked and synced before it gets its name, and has no free space in it. To restore it,
    stop all workers and put it in place of the store, without the old -wal and -shm. A PostgreSQL store is backed up by
    pg_dump or pg_basebackup.

    \b
    holdfast backup /backups/holdfast-monday.db
    """

    path = os.path.abspath(target)

    async def work(store: Store) -> int:
        return await store.backup(path)

    written = with_store(setup, work)
    if setup.is_json:
        print(to_json({"file": path, "bytes": written}))
    else:
        print(clean(f"Wrote {target} ({size(written)}).", one_line=True))
    return OK
