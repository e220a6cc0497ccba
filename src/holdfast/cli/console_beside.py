"""A console in a process beside, for a command that shows something in it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.cli.failure import Failure

_PATIENCE_S = 60.0


@asynccontextmanager
async def console_beside(url: str) -> AsyncIterator[str]:
    """The address of a console of this store, as long as the block lasts.

    In a session of its own: Ctrl-C is for the command, which then ends it.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "holdfast", "console", url, "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        said = await asyncio.wait_for(process.stdout.readline(), _PATIENCE_S)
        if not said:
            errors = (await process.stderr.read()).decode(errors="replace").strip()
            raise Failure(f"The console did not start: {errors.splitlines()[-1] if errors else 'it said nothing'}")
        yield str(json.loads(said)["url"])
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
