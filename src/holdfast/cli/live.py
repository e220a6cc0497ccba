"""A screen that is drawn anew several times a second, until q or Ctrl-C. The only place that loads rich for `watch`."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.setup import Setup
from holdfast.cli.timeline import Line


class Screen:
    """The whole terminal, given back when it is left."""

    def __init__(self, setup: Setup) -> None:
        self._console = Console(no_color=not setup.has_color(sys.stdout), highlight=False, emoji=False, markup=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self.has_quit = asyncio.Event()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows, as they are now."""
        return self._console.size.width, self._console.size.height

    @contextmanager
    def shown(self) -> Iterator[Screen]:
        """Take the terminal; q sets `has_quit`."""
        with _single_keys(self._typed), self._live:
            yield self

    def _typed(self, keys: str) -> None:
        if "q" in keys.lower():
            self.has_quit.set()

    def draw(self, lines: list[Line]) -> None:
        """Show these lines and nothing else."""
        text = Text("\n", no_wrap=True, overflow="crop").join(
            Text.assemble(*((part, style) for part, style in line)) for line in lines
        )
        self._live.update(text, refresh=True)

    async def ticks(self, every_s: float) -> AsyncIterator[None]:
        """Now, and then again and again until q."""
        while not self.has_quit.is_set():
            yield
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self.has_quit.wait()


@contextmanager
def _single_keys(typed: Callable[[str], None]) -> Iterator[None]:
    """Read keys as they are pressed; Ctrl-C stays a signal."""
    if not sys.stdin.isatty():
        yield
        return
    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(fd)

    def read() -> None:
        typed(os.read(fd, 100).decode(errors="ignore"))

    try:
        tty.setcbreak(fd)
        loop.add_reader(fd, read)
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
