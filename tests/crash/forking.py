"""Forks after connecting: the child must be refused, the parent must not suffer. `forking.py URL`."""

from __future__ import annotations

import asyncio
import os
import sys

import holdfast as hf


@hf.agent
async def double(n: int) -> int:
    return 2 * n


def main(url: str) -> int:
    loop = asyncio.new_event_loop()
    app = hf.connect(url, agents=[double])
    loop.run_until_complete(app.__aenter__())
    first = loop.run_until_complete(app.start(double(1), id="before"))
    loop.run_until_complete(first.result())
    pid = os.fork()
    if not pid:
        inside = asyncio.new_event_loop()
        refused = 0
        for use in (lambda: app.start(double(2), id="inside"), lambda: app.runs(), lambda: app.get("before").status()):
            try:
                inside.run_until_complete(use())
            except hf.StoreError as error:
                refused += type(error).__name__ == "ForkedConnection"
        try:
            asyncio.new_event_loop().run_until_complete(app.__aexit__(None, None, None))
        finally:
            sys.exit(refused)  # an ordinary end, with all the clean-up of the interpreter
    _, status = os.waitpid(pid, 0)
    second = loop.run_until_complete(app.start(double(3), id="after"))
    result = loop.run_until_complete(second.result())
    loop.run_until_complete(app.__aexit__(None, None, None))
    print(os.waitstatus_to_exitcode(status), result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
