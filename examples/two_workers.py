"""Two workers on PostgreSQL, one of which is killed with `kill -9`: the other one goes on with what it had.

python examples/two_workers.py

It starts a server of its own, in `./pg`, unless `HOLDFAST_URL` names one (`postgresql://USER:PASSWORD@HOST/DATABASE`).
The workers may as well be on different machines: `HOLDFAST_URL=… holdfast worker examples/two_workers.py` on each.
"""

import asyncio
import contextlib
import os
import subprocess
import sys

import holdfast as hf
from holdfast.testing.postgres import PostgresServer

LETTERS = 20


@hf.step
async def write(number: int) -> str:
    await asyncio.sleep(0.3)
    return f"Dear number {number}"


@hf.effect
async def post(number: int, text: str) -> None:
    async with hf.transaction() as connection:  # a connection of asyncpg
        await connection.execute("INSERT INTO letters VALUES ($1, $2)", number, text)


@hf.agent
async def letter(number: int) -> str:
    text = await write(number)
    await post(number, text)
    return text


@hf.effect
async def make_table() -> None:
    async with hf.transaction() as connection:
        await connection.execute("CREATE TABLE letters (number integer, body text)")


@hf.effect
async def count() -> int:
    async with hf.transaction() as connection:
        return await connection.fetchval("SELECT count(*) FROM letters")


@hf.agent
async def prepared() -> None:
    await make_table()


@hf.agent
async def counted() -> int:
    return await count()


async def main(url: str) -> str:
    async with hf.connect(url) as app:  # a client: it executes nothing
        first, second = worker(url), worker(url)
        try:
            await (await app.start(prepared(), id="prepared")).result()
            runs = [await app.start(letter(number), id=f"letter-{number}") for number in range(LETTERS)]
            await runs[LETTERS // 4].result()
            first.kill()
            texts = [await run.result() for run in runs]
            posted = await (await app.start(counted(), id="counted")).result()
            return f"{len(texts)} letters, {posted} posted"
        finally:
            for process in (first, second):
                process.kill()
                process.wait()


def worker(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "worker", __file__, "--concurrency", "4"]
    return subprocess.Popen(command, env=os.environ | {"HOLDFAST_URL": url})


if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        url = os.environ.get("HOLDFAST_URL", "")
        if not url:
            url = stack.enter_context(PostgresServer("pg")).url()
        print(asyncio.run(main(url)))
