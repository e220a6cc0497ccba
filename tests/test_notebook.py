"""The page about notebooks, executed as one: in a real kernel, cell by cell, and again after the kernel was killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="it comes with the dev extra")
pytest.importorskip("ipykernel", reason="it comes with the dev extra")
import nbformat  # noqa: E402

V4: Any = nbformat.v4
PAGE = Path(__file__).parent.parent / "docs" / "notebook.md"
SOURCE = Path(__file__).parent.parent / "src"
CELL = re.compile(r"^```python\n(.*?)^```\n(?:\n<!-- output -->\n```text\n(.*?)^```\n)?", re.M | re.S)


def cells() -> list[tuple[str, str]]:
    """The cells of the page, with what they print."""
    return [(source, printed or "") for source, printed in CELL.findall(PAGE.read_text("utf-8"))]


class Notebook:
    """A kernel, and a person who executes cells in it."""

    def __init__(self, folder: Path) -> None:
        self._client: Any = nbclient.NotebookClient(
            V4.new_notebook(),
            timeout=120,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        self._client.create_kernel_manager()
        self._client.start_new_kernel()
        self._client.start_new_kernel_client()

    def execute(self, source: str) -> str:
        """What a cell prints, and the error that it ends with."""
        cell = V4.new_code_cell(source)
        notebook = self._client.nb
        notebook.cells.append(cell)
        error = ""
        try:
            self._client.execute_cell(cell, len(notebook.cells) - 1)
        except nbclient.exceptions.CellExecutionError as failed:
            error = f"{failed.ename}: {failed.evalue}\n"
        return "".join(out.text for out in cell.outputs if out.output_type == "stream" and out.name == "stdout") + error

    def kill(self) -> None:
        """As a machine does that is switched off."""
        os.kill(self._client.km.provisioner.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        self._client.kc.stop_channels()
        self._client._cleanup_kernel()


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    opened = Notebook(tmp_path)
    yield opened
    opened.close()


@pytest.mark.timeout(300)
def test_the_page_is_what_happens_in_a_notebook(notebook: Notebook) -> None:
    assert len(cells()) == 4
    for source, printed in cells():
        assert notebook.execute(source) == printed
    (define, _), _, _, (again, printed) = cells()
    assert notebook.execute(again) == printed  # executed once more, and nothing happens once more
    assert notebook.execute(define + again) == printed  # the agent is another object by now


@pytest.mark.timeout(300)
def test_cells_that_are_executed_again_go_on_with_the_same_run_after_the_kernel_died(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCE))
        patch.delenv("HOLDFAST_URL", raising=False)
        define, run, answer, again = (source for source, _ in cells())
        first = Notebook(tmp_path)
        assert first.execute(define + run) == "searching for tides\nsomebody has to answer\n"
        first.kill()
        second = Notebook(tmp_path)
        try:
            assert second.execute(define + run) == "somebody has to answer\n"
            second.execute(answer)
            assert second.execute(again) == "sent 2 pages\n"
            listed = "async with hf.connect() as app:\n    print([each.id for each in await app.runs()])"
            assert second.execute(listed) == "['issue-7']\n"
        finally:
            second.close()


@pytest.mark.timeout(300)
def test_in_a_notebook_run_says_what_to_use_instead(notebook: Notebook) -> None:
    define = cells()[0][0]
    assert notebook.execute(define + 'hf.run(newsletter("tides"))') == (
        "UsageError: hf.run() was called where an event loop runs already, as in a notebook: use `await "
        "hf.arun(newsletter(…), id=…)` there, or `async with hf.connect(…) as app:` and app.start().\n"
    )
    awaited = notebook.execute("await newsletter('tides')")
    assert awaited.startswith("NotInRun: newsletter(…) was awaited outside of a run.")


@pytest.mark.timeout(300)
def test_a_forgotten_await_in_a_cell_is_found_by_its_line(notebook: Notebook) -> None:
    mistake = "\n".join(
        [
            "import holdfast as hf",
            "@hf.step",
            "async def search() -> int:",
            "    return 1",
            "@hf.agent",
            "async def forgets() -> int:",
            "    search()",
            "    return 2",
            "await hf.arun(forgets(), id='f')",
        ]
    )
    assert re.search(r"search\(…\) was called and not awaited \(\S+:7\), so it never", notebook.execute(mistake))
