"""The chat among the examples, killed in the middle of an answer: it goes on where it was."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.testing.processes import environment

CHAT = Path(__file__).parents[2] / "examples" / "chat_with_memory.py"


@pytest.mark.parametrize("point", ["stream.before_append:kill@2", "say.after_commit:kill@2"])
def test_a_killed_chat_goes_on_where_it_was(tmp_path: Path, point: str) -> None:
    def chat(fault: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(CHAT)],
            cwd=tmp_path,
            env=environment({"HOLDFAST_FAULT": fault}),
            capture_output=True,
            text=True,
            check=False,
        )

    assert chat(point).returncode == -9
    ended = chat()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "4 messages, the last of 73 letters"

    async def look() -> None:
        async with hf.connect(str(tmp_path / ".holdfast" / "holdfast.db")) as app:
            events = [event async for event in app.get("tides-1").stream(offset=0)]
            resets = [event.number for event in events if event.kind == "reset"]
            (receipt,) = await app.get("tides-1").receipts()
            answered = 2 if point.startswith("stream") else 3
            assert (receipt.replayed, receipt.executed) == (answered, 4 - answered), (
                "its step, and what the thread said"
            )
            assert len(resets) == point.startswith("stream")
            if resets:  # what it had comes again as one chunk, and then the rest
                before = "".join(event.text for event in events[: resets[0]])
                assert before
                assert events[resets[0]].text == before
            said = await app.thread("tides", dict).recent()
            assert [message["role"] for message in said] == ["user", "assistant"] * 2
            text = "".join(event.text for event in events[resets[0] if resets else 0 :])
            assert said[1]["text"] == text

    asyncio.run(look())
