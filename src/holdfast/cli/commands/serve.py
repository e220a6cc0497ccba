"""`holdfast serve`"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.base.config import URL, store_url
from holdfast.cli.failure import OK, USAGE, Failure
from holdfast.cli.numbers import Number
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import check_exists
from holdfast.cli.supervisor import Supervisor
from holdfast.cli.text import clean, to_json

if TYPE_CHECKING:
    from holdfast.server.launch import Launch

_DRAIN_S = 30.0
_FILE = click.Path(path_type=Path)


@command("serve", here="is a server itself")
@click.argument("sources", metavar="[FILE[:AGENT]]...", nargs=-1)
@click.option("--port", type=Number(0, 65535), default=7788, show_default=True, help="0: any that is free.")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="A name it has besides localhost; may be repeated."
)
@click.option("--bind", metavar="ADDRESS", help="Listen there. [default: 127.0.0.1 and ::1]")
@click.option("--uds", metavar="PATH", help="Listen on a Unix socket instead, which only you can connect to.")
@click.option("--read-only", is_flag=True, help="Change nothing; the store is opened for reading.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="The token. [default: beside the store; made once]")
@click.option("--users", "users_file", type=_FILE, metavar="FILE", help="People with tokens of their own, and roles.")
@click.option("--hooks", "hooks_file", type=_FILE, metavar="FILE", help="Who may deliver webhooks: names and secrets.")
@click.option("--add-user", metavar="NAME:ROLE", help="Write somebody into that file, print the token, and end.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(exists=True), help="Speak https with this certificate …")
@click.option("--tls-key", metavar="FILE", type=click.Path(exists=True), help="… and its key.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front speaks https to browsers.")
@click.option("--auth-header", metavar="NAME", default="", help="The proxy says in this header who somebody is.")
@click.option("--trusted-proxy", "proxies", multiple=True, metavar="NETWORK", help="Where it is; may be repeated.")
@click.option("--worker", is_flag=True, help="Execute runs of the agents in FILE, in a process beside.")
def serve_command(
    setup: Setup,
    sources: tuple[str, ...],
    port: int,
    hosts: tuple[str, ...],
    bind: str | None,
    uds: str | None,
    read_only: bool,
    token_file: Path | None,
    users_file: Path | None,
    hooks_file: Path | None,
    add_user: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
    auth_header: str,
    proxies: tuple[str, ...],
    worker: bool,
) -> int:
    """Serve the console and the HTTP API of the store, to this host alone unless told otherwise.

    Prints the URL with the token behind the `#`, where no log and no other server sees it. Scripts send the token as
    `Authorization: Bearer …`; it is in a file beside the store that only you can read. Ctrl-C ends it.

    \b
    holdfast serve
    holdfast serve agents.py --worker
    holdfast serve --users users.toml --add-user ana:operator
    """
    check_installed()
    from holdfast.server.launch import Launch, Wishes
    from holdfast.server.serving import Address

    if add_user is not None:
        return _add_user(users_file, add_user)
    if worker != bool(sources):
        raise Failure("Files are for the worker beside: give FILE and --worker, or neither.", USAGE)
    if worker and read_only:
        raise Failure("A worker writes to the store: --worker and --read-only exclude each other.", USAGE)
    if read_only:
        check_exists(setup)
    url = store_url(setup.db)
    launch = Launch(
        Wishes(
            url=url,
            place=Address(port=port, bind=bind, uds=uds, certificate=tls_cert, private_key=tls_key),
            hosts=hosts,
            token_file=token_file,
            users_file=users_file,
            hooks_file=hooks_file,
            auth_header=auth_header,
            trusted_proxies=proxies,
            is_behind_proxy=behind_proxy,
            is_read_only=read_only,
        )
    )

    def ready() -> None:
        if setup.is_json:
            print(to_json({"url": launch.shown, "token_file": str(launch.token_file)}), flush=True)
        else:
            print(launch.shown, flush=True)
            print(clean(f"Serving{' for reading' if read_only else ''} until Ctrl-C."), file=sys.stderr, flush=True)

    return asyncio.run(_run(launch, ready, _command(sources) if worker else None, url))


async def _run(launch: Launch, ready: Callable[[], None], workers: list[str] | None, url: str) -> int:
    if workers is None:
        return await launch.run(ready)
    parent = Supervisor(workers, 1, _DRAIN_S, environment={URL: url})
    return await launch.run(ready, beside=parent.supervise())


def _command(sources: tuple[str, ...]) -> list[str]:
    """A worker beside. What this process can import, it can, and nothing else."""
    is_in_path = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *([] if is_in_path else ["-P"]), "-m", "holdfast", "worker", *sources]


def _add_user(users_file: Path | None, given: str) -> int:
    from holdfast.server.security.people import Role
    from holdfast.server.security.users import add_user

    name, _, role = given.partition(":")
    if users_file is None or role not in list(Role):
        raise Failure(f"--add-user takes NAME:ROLE ({', '.join(Role)}), and --users the file.", USAGE)
    print(add_user(users_file, name, Role(role)))
    return OK


def check_installed() -> None:
    """The server is an extra."""
    if any(find_spec(each) is None for each in ("fastapi", "uvicorn")):
        raise Failure("The server needs FastAPI and uvicorn: pip install 'holdfast[server]'", USAGE)
