"""How the demo is shown: live on a terminal, as plain lines in a pipe, not at all as JSON."""

from __future__ import annotations

import shutil
import sys
from typing import Protocol

from holdfast.cli.setup import Setup
from holdfast.cli.text import clean, pad, paint, shorten, width

_LABEL = 26  #: columns of what a line is about


class Stage(Protocol):
    """Where the demo is told; a context manager."""

    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...
    def title(self, text: str) -> None: ...
    def line(self, mark: str, what: str, text: str = "", *, style: str = "") -> None: ...
    def now(self, text: str) -> None: ...
    def section(self, text: str) -> None: ...
    def found(self, is_ok: bool, what: str, text: str) -> None: ...
    def command(self, text: str, purpose: str) -> None: ...


class Silence:
    """Shows nothing: the facts are printed as JSON."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def title(self, text: str) -> None: ...
    def line(self, mark: str, what: str, text: str = "", *, style: str = "") -> None: ...
    def now(self, text: str) -> None: ...
    def section(self, text: str) -> None: ...
    def found(self, is_ok: bool, what: str, text: str) -> None: ...
    def command(self, text: str, purpose: str) -> None: ...


class Lines:
    """One line for each thing, as long as it is."""

    def __init__(self, setup: Setup) -> None:
        self._has_color = setup.has_color(sys.stdout)

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

    def title(self, text: str) -> None:
        self._print(text, "bold")

    def line(self, mark: str, what: str, text: str = "", *, style: str = "") -> None:
        self._print(f"{mark} {pad(what, _LABEL)} {clean(text, one_line=True)}".rstrip(), style)

    def now(self, text: str) -> None: ...

    def section(self, text: str) -> None:
        self._print(f"\n{text}", "bold")

    def found(self, is_ok: bool, what: str, text: str) -> None:
        mark, style = ("✔", "green") if is_ok else ("✖", "red")
        self._print(f"{paint(mark, style, self._has_color)} {pad(what, _LABEL)} {clean(text, one_line=True)}")

    def command(self, text: str, purpose: str) -> None:
        self._print(f"  {text}   # {purpose}")

    def _print(self, text: str, style: str = "") -> None:
        print(paint(text, style, self._has_color), flush=True)


class Terminal:
    """Lines that fit, and below them what is going on now."""

    def __init__(self, setup: Setup) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._console = Console(no_color=not setup.has_color(sys.stdout), highlight=False)
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(self._spinner, console=self._console, transient=True, refresh_per_second=12)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def title(self, text: str) -> None:
        self._print(text, "bold")
        self._console.print()

    def line(self, mark: str, what: str, text: str = "", *, style: str = "") -> None:
        self._print(f"{mark} {pad(what, _LABEL)} {clean(text, one_line=True)}", style)

    def now(self, text: str) -> None:
        from rich.text import Text

        shown = shorten(text, self._columns - 3)
        self._spinner.text = Text(shown, style="cyan", no_wrap=True)  # update() would keep the former for an empty one

    def section(self, text: str) -> None:
        self._live.stop()
        self._console.print()
        self._print(text, "bold")

    def found(self, is_ok: bool, what: str, text: str) -> None:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(width=max(_LABEL, width(what)), no_wrap=True)
        grid.add_column()
        mark = Text("✔", style="green") if is_ok else Text("✖", style="bold red")
        grid.add_row(mark, Text(what), Text(clean(text, one_line=True)))
        self._console.print(grid)

    def command(self, text: str, purpose: str) -> None:
        # Never cut or wrapped by us: it is there to be copied.
        self._console.print(f"  {text}", style="cyan", soft_wrap=True, markup=False)
        self._print(f"    {purpose}", "dim")

    @property
    def _columns(self) -> int:
        return shutil.get_terminal_size().columns

    def _print(self, text: str, style: str) -> None:
        self._console.print(shorten(text, self._columns - 1), style=style or None, markup=False, no_wrap=True)
