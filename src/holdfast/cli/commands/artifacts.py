"""`holdfast artifacts`"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.candidates import candidates
from holdfast.cli.clients import with_app
from holdfast.cli.failure import INTEGRITY, OK, USAGE, Failure
from holdfast.cli.lists import Listed, show_list, stamp
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import clean, to_json
from holdfast.history.artifacts import Output, named, outputs_of
from holdfast.history.lookup import find
from holdfast.history.words import size
from holdfast.journal.files import opened
from holdfast.model import RunId
from holdfast.model.files import FileState
from holdfast.running.artifacts import Artifact
from holdfast.store.contract import Store


def _complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def read(store: Store) -> list[CompletionItem]:
        found = await outputs_of(store, (await find(store, ctx.params["run"])).id, check=False)
        return candidates((each.name, each.kind) for each in found if each.name.startswith(incomplete))

    try:
        return with_store(ctx.find_root().obj or Setup(), read)
    except Exception:  # the shell has no place for errors while the user types
        return []


@command("artifacts")
@run_argument()
@click.argument("name", required=False, shell_complete=_complete_name)
@click.option("--save", metavar="PATH", help="Write the artifact to a file, or into a directory.")
@click.option("--version", type=int, metavar="N", help="This version; by default the one that was put out last.")
@click.option("--no-check", is_flag=True, help="Do not read the stored bytes to see whether they are sound.")
@click.option(
    "--put",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Give the run this file, as NAME; by default as the file is called.",
)
@click.option("--media-type", metavar="TYPE", help="What --put gives; by default what its name tells.")
@actor_options
def artifacts_command(
    setup: Setup,
    run: str,
    name: str | None,
    *,
    save: str | None,
    version: int | None,
    no_check: bool,
    put: str | None,
    media_type: str | None,
    by: str | None,
    note: str,
) -> int:
    """List what a run has put out, save some of it, or give it a file.

    The record itself, files and references with their versions, workspaces, the plan, what it said in threads, what is
    left of streams that were cut off. Stored bytes are compared with their digests; exit code 6: some are missing or
    damaged. With NAME only what has that name. A workspace is saved as a directory. Piped, lines of:
    name, version, kind, state, bytes, sha256, call, time, reference or detail.

    A run that has not ended can be given files: --put. It is not while a worker executes it.

    holdfast artifacts issue-7 notes.txt --put notes.txt --note "as discussed"
    """
    if put is not None:
        if save is not None or version is not None:
            raise Failure("--put gives a file to the run; --save and --version are for one that it has.", USAGE)
        return _put(setup, run, Path(put), name=name or Path(put).name, media_type=media_type, by=by, note=note)
    if media_type is not None or note:
        raise Failure("--media-type and --note are for --put.", USAGE)
    if name is None and (save is not None or version is not None):
        raise Failure("Say which one: holdfast artifacts RUN NAME --save PATH.", USAGE)

    async def read(store: Store) -> tuple[list[Output], str | None]:
        run_id = (await find(store, run)).id
        found = await outputs_of(store, run_id, check=not no_check and save is None)
        if name is None:
            return found, None
        chosen = named(found, name, run_id=run_id, version=version)
        if save is None:
            return [each for each in found if each.name == name and version in (None, each.version)], None
        return [chosen], str(await Artifact._of(run_id, chosen, store).save(save))

    outputs, saved = with_store(setup, read)
    if saved is not None:
        (output,) = outputs
        if setup.is_json:
            print(to_json({**output.as_dict(), "saved": saved}))
        else:
            about = f"{output.name} version {output.version} is in {saved}"
            print(clean(about, one_line=True), file=sys.stdout if setup.is_table else sys.stderr)
        return OK
    show_list(
        setup,
        [_listed(output) for output in outputs],
        head=("NAME", "VERSION", "KIND", "STATE", "SIZE", "CALL", ""),
        flexible=6,
        nothing="Nothing.",
    )
    return OK if all(output.state is FileState.stored for output in outputs) else INTEGRITY


def _put(setup: Setup, run: str, file: Path, *, name: str, media_type: str | None, by: str | None, note: str) -> int:
    async def give(app: Holdfast) -> tuple[RunId, int, bool]:
        found = await app.find(run)
        with opened(str(file)) as stream:
            given = await app._commanded.give(found.id, name, stream, media_type=media_type, by=by, note=note)
        return found.id, *given

    run_id, version, is_new = with_app(setup, give)
    if setup.is_json:
        print(to_json({"run": run_id, "name": name, "version": version, "is_new": is_new}))
    else:
        told = "is given to" if is_new else "is among the artifacts already of"
        print(clean(f"{name} version {version} {told} run {run_id}.", one_line=True))
    return OK


def _listed(output: Output) -> Listed:
    digest, bytes_ = output.identity
    is_sound = output.state is FileState.stored
    about = output.ref or output.detail
    line = (
        output.name,
        output.version,
        output.kind,
        output.state.value,
        bytes_,
        digest or None,
        output.key,
        stamp(output.at),
        about,
    )
    cells = (
        output.name,
        str(output.version),
        output.kind,
        "" if is_sound else f"✖ {output.state.value}",
        size(bytes_) if bytes_ is not None and not output.detail else "",
        output.key,
        about,
    )
    return Listed(output.as_dict(), line, cells, "" if is_sound else "red")
