"""`holdfast console`"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import webbrowser
from contextlib import ExitStack
from pathlib import Path

import click

from holdfast.base.config import store_url
from holdfast.cli.commands.serve import check_installed
from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import check_exists
from holdfast.cli.text import clean, to_json
from holdfast.errors import UsageError

_USUAL = 7788


@command("console", here="serves a store itself")
@click.argument("store", metavar="[STORE]", required=False)
@click.option("--port", type=Number(0, 65535), help="0: any that is free. [default: 7788, or any if that is taken]")
@click.option("--read-only", is_flag=True, help="Change nothing: neither in the store nor beside it.")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
def console_command(setup: Setup, store: str | None, port: int | None, read_only: bool, opens: bool) -> int:
    """Look at a store in the browser: what needs you, what happened and why; answer, settle, pause and retry.

    STORE is a path or url, as for --db. Prints the address with a token in it; only this host can connect. With
    --read-only it can be somebody else's file. Ctrl-C ends it; runs do not need it.

    \b
    holdfast console --open
    holdfast console /srv/acme/holdfast.db --read-only
    """
    check_installed()
    from holdfast.server.launch import Launch, Wishes
    from holdfast.server.serving import Address

    if store is not None and setup.db is not None:
        raise Failure("Name the store once: as STORE, or with --db.", USAGE)
    setup.db = store if store is not None else setup.db
    check_exists(setup)

    with ExitStack() as ends:
        # Beside a store that must not be changed no token is left.
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-")) if read_only else None

        def launched(wanted: int) -> Launch:
            return Launch(
                Wishes(
                    url=store_url(setup.db),
                    place=Address(port=wanted),
                    token_file=None if folder is None else Path(folder, "token"),
                    is_read_only=read_only,
                )
            )

        try:
            launch = launched(_USUAL if port is None else port)
        except UsageError:
            if port is not None:
                raise
            launch = launched(0)

        def ready() -> None:
            if setup.is_json:
                print(to_json({"url": launch.shown}), flush=True)
            else:
                print(launch.shown, flush=True)
                print(clean("The console, until Ctrl-C."), file=sys.stderr, flush=True)
            if opens and not webbrowser.open(launch.shown):
                print("No browser was found: open the address by hand.", file=sys.stderr, flush=True)

        return asyncio.run(launch.run(ready))
