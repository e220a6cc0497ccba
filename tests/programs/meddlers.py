"""People who act at random moments: they pause, resume, cancel, settle, and say what nobody asked them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import holdfast as hf
from holdfast.model import Status
from holdfast.testing import LedgerLine
from tests.programs.agents import deeds_of, ledger
from tests.programs.driver import PATIENCE_S, People
from tests.programs.marks import was_seen
from tests.programs.trees import Node, mix

#: Effects that can be in doubt only if somebody is killed.
_SURE = frozenset({"plainly", "sure", "both", "booked"})
_LOOKS = 400  #: for an undo to begin
_LIE: list[Any] = ["a lie", 0]
_REFUSED = (hf.AlreadySettled, hf.UsageError, hf.RunFinished)


class Meddlers(People):
    """They know who is killed and who is not, and tell the truth about effects in doubt. About others they lie."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.met: dict[str, set[str]] = defaultdict(set)  #: hazards, and the programs that met them
        self.paused: set[str] = set()
        self._begun: dict[tuple[str, str, int], LedgerLine] = {}
        self._ended: list[tuple[str, str, int]] = []
        self._read = 0
        self._trees: dict[str, Node] = {}

    async def meet(self, run_id: str, tree: Node) -> None:
        self._trees[run_id] = tree
        await super().meet(run_id, tree)

    def _meet(self, hazard: str, run_id: str) -> None:
        self.met[f"people: {hazard}"].add(run_id.partition(".")[0])

    def disturb(self, run_id: str, *, pauses: float, cancels: float) -> None:
        pick = self._chance.random()
        if pick < cancels:
            self._doomed.add(run_id)
            self._later(self._end(run_id))
        elif pick < cancels + pauses:
            self._later(self._hold_up(run_id))

    async def _hold_up(self, run_id: str) -> None:
        for _ in range(self._chance.randint(1, 3)):
            self._meet("pause and resume", run_id)
            self.paused.add(run_id)
            await self._pause(run_id, self._chance.uniform(0, 0.5), self._chance.uniform(0, 0.3))

    async def _end(self, run_id: str) -> None:
        """Cancel a run: whenever it is, or while it undoes; perhaps it is paused before, or while it cleans up."""
        run, chance = self._app.get(run_id), self._chance
        await asyncio.sleep(chance.uniform(0, 0.4))
        if chance.random() < 0.6:
            places = [node.at for node in self._nodes[run_id].walk() if node.kind == "deed"]
            for _ in range(_LOOKS):
                if was_seen("undo", places):
                    break
                await asyncio.sleep(0.005)
        how = chance.choice(["", "", "", "pause before", "pause after", "pause after, again"])
        if how == "pause before" and not (await run.pause(by="a person")).is_final:
            self.paused.add(run_id)
            await asyncio.sleep(chance.choice([0, 0.05, 0.3]))
        cancelling = asyncio.create_task(run.cancel(by="a person", timeout=PATIENCE_S))
        if how.startswith("pause after"):
            await asyncio.sleep(chance.choice([0.005, 0.02, 0.05]))
            if not (await run.pause(by="a person")).is_final:
                self.paused.add(run_id)
            if how.endswith("again"):
                await run.cancel(by="a person", timeout=0.0)
        if await cancelling is Status.cancelled:
            self.cancelled.add(run_id)
            self._meet(f"cancel {how}".strip(), run_id)

    # effects

    async def look_around(self) -> bool:
        is_over = await super().look_around()
        if self.is_calm:
            await self._meddle()
        return is_over

    def _read_ledger(self) -> None:
        lines = ledger.lines()
        for line in lines[self._read :]:
            body = (line.run, line.key, line.attempt)
            if line.what == "begin":
                self._begun[body] = line
            else:
                self._begun.pop(body, None)
                if line.kind == "effect":
                    self._ended.append(body)
        self._read = len(lines)

    async def _meddle(self) -> None:
        """Give verdicts on effects that are not in doubt: one that is under way, and one that has ended."""
        self._read_ledger()
        under_way = [body for body, line in self._begun.items() if line.kind == "effect" and _is_sure(body[1])]
        if under_way:
            await self._lie(*self._chance.choice(under_way), "a verdict on what is under way")
        ended = [body for body in self._ended[-50:] if _is_sure(body[1])]
        if ended and self._chance.random() < 0.3:
            await self._lie(*self._chance.choice(ended), "a verdict on what has ended")

    async def _lie(self, run_id: str, key: str, attempt: int, what: str) -> None:
        doubt = hf.InDoubt(self._store, run_id, key, "", attempt, None, "", 0, "")
        try:
            await doubt.resolve(self._chance.choice([hf.landed(_LIE), hf.not_landed()]), by="a meddler")
            self.problems.append(f"run {run_id}: {what} was accepted: {key}, attempt {attempt}")
        except _REFUSED:
            self._meet(f"{what} refused", run_id)

    async def _settle(self) -> None:
        for doubt in await self._app.in_doubt():
            self._read_ledger()
            body = self._begun.get((doubt.run_id, doubt.key, doubt.attempt))
            if body is not None and any(process.pid == body.pid for process in self._workers.alive) and self.is_calm:
                self.problems.append(
                    f"run {doubt.run_id}: {doubt.key} is said to be in doubt, and is under way: {body}"
                )
                continue
            if self._chance.random() < 0.4:
                continue  # later
            acted = [deed for deed in deeds_of(doubt.idempotency_key) if deed.what == "act"]
            verdict: hf.Verdict[Any] = (
                hf.landed([acted[0].at, mix(acted[0].x, acted[0].at)]) if acted else hf.not_landed()
            )
            try:
                await doubt.resolve(verdict, by="a person", note="looked")
            except _REFUSED:
                continue
            self.settled += 1
            self._meet(f"settled as {'landed' if acted else 'not landed'}", doubt.run_id)
            await self._lie(doubt.run_id, doubt.key, doubt.attempt, "a second verdict")


def _is_sure(key: str) -> bool:
    return key.rpartition("/")[2].partition("#")[0] in _SURE
