"""Power loss, simulated: a disk that forgets what was not synced.

A SQLite VFS passes everything on to real files and notes, for each file, what was written since its last sync. At a
random operation the power goes: nothing works any more, and what survives is the synced content plus an arbitrary
subset of the writes after it, each of them lost, kept or torn at 512-byte sectors, in any combination. The surviving
files are written to another directory and opened by an ordinary store there. Everything that was acknowledged must be
there, each run's records must be a gapless chain and its mail complete, and the store must not refuse to open.

`lying=True` makes a disk whose sync does nothing; a check that cannot tell it from an honest one proves nothing.

    python -m holdfast.testing.powerloss 300
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from holdfast.errors import CorruptJournal, HoldfastError
from holdfast.journal.integrity import check_records
from holdfast.model import Append, Applied, Claim, Kind, RunRow
from holdfast.store.contract import Store
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import samples

_SECTOR = 512
_RUNS = 3
_STEPS = 12


class PowerLoss(OSError):
    """The machine is off."""


@dataclass(slots=True)
class _File:
    synced: bytearray
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, data), or (size, None): truncated


class Disk:
    """What is on the platters and what is only in the cache."""

    def __init__(self, *, cut_at: int | None, chance: random.Random, lying: bool) -> None:
        self.operations = 0
        self.off = False
        self._cut_at = cut_at
        self._chance = chance
        self._lying = lying
        self._files: dict[str, _File] = {}

    def opened(self, path: str) -> None:
        if path not in self._files:
            real = Path(path)
            self._files[path] = _File(bytearray(real.read_bytes() if real.exists() else b""))

    def write(self, path: str, offset: int, data: bytes) -> None:
        self._files[path].pending.append((offset, data))  # noted first: the write under way may be torn as well
        self._operation()

    def truncate(self, path: str, size: int) -> None:
        self._files[path].pending.append((size, None))
        self._operation()

    def sync(self, path: str) -> None:
        self._operation()
        if not self._lying:
            file = self._files[path]
            for offset, data in file.pending:
                _apply(file.synced, offset, data)
            file.pending.clear()

    def delete(self, path: str) -> None:
        self._operation()
        self._files.pop(path, None)

    def check_power(self) -> None:
        if self.off:
            raise PowerLoss(5, "the power is off")

    def _operation(self) -> None:
        self.check_power()
        self.operations += 1
        if self.operations == self._cut_at:
            self.off = True
            self.check_power()

    def survivors(self) -> dict[str, bytes]:
        """One of the many things that may be found after the power comes back."""
        found = {}
        for path, file in self._files.items():
            content = bytearray(file.synced)
            for offset, data in file.pending:
                fate = self._chance.random()
                if fate < 0.4:
                    _apply(content, offset, data)
                elif fate < 0.7 and data is not None:
                    self._tear(content, offset, data)
            found[path] = bytes(content)
        return found

    def _tear(self, content: bytearray, offset: int, data: bytes) -> None:
        start = offset
        while start < offset + len(data):
            end = min(start - start % _SECTOR + _SECTOR, offset + len(data))
            if self._chance.random() < 0.5:
                _apply(content, start, data[start - offset : end - offset])
            start = end


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class _Vfs(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _VfsFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.delete(filename)
        super().xDelete(filename, syncdir)


class _VfsFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        disk.check_power()
        disk.opened(self._path)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.check_power()
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.write(self._path, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.truncate(self._path, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.sync(self._path)  # the real one is not needed: this process will not lose power


@dataclass(frozen=True, slots=True)
class Trial:
    """What one power loss did. `problem` is empty when every promise was kept."""

    seed: int
    cut_at: int | None
    operations: int
    acknowledged: int
    problem: str = ""


def run_trial(directory: Path, *, seed: int, cut_at: int | None, lying: bool = False) -> Trial:
    """Work on a store, lose power at operation `cut_at` (None: pull the plug at the end), look at what is left."""
    chance = random.Random(seed)  # noqa: S311
    disk = Disk(cut_at=cut_at, chance=chance, lying=lying)
    name = f"holdfast-powerloss-{seed}-{id(disk)}"
    vfs = _Vfs(name, disk)
    before, after = directory / "before", directory / "after"
    try:
        acknowledged = asyncio.run(_work(before / "runs.db", disk, chance=chance, vfs=name))
    finally:
        vfs.unregister()
    after.mkdir()
    for path, content in disk.survivors().items():
        if Path(path).parent == before.resolve():
            (after / Path(path).name).write_bytes(content)
    # What processes noted of the log may have survived, all of it; it must not say more than the disk kept.
    workers = before / "runs.db-workers"
    if workers.is_dir():
        shutil.copytree(workers, after / workers.name)
    problem = asyncio.run(_inspect(after / "runs.db", acknowledged))
    return Trial(seed, cut_at, disk.operations, sum(row.head_seq for row in acknowledged.values()), problem)


async def _work(path: Path, disk: Disk, *, chance: random.Random, vfs: str) -> dict[str, RunRow]:
    """Start runs and append to them until done or dark; the last acknowledged state of each run."""
    acknowledged: dict[str, RunRow] = {}
    store = SqliteStore(path, vfs=vfs, checkpoint_pages=chance.choice([8, 30, 1000]))
    try:
        await store.open()
        chances = [random.Random(chance.random()) for _ in range(_RUNS)]  # noqa: S311
        lives = [_live(store, disk, chance=each, acknowledged=acknowledged) for each in chances]
        working = asyncio.ensure_future(asyncio.gather(*lives))
        while not (await asyncio.wait({working}, timeout=0.01))[0]:
            if disk.off:
                working.cancel()  # a machine that is off does not wait for its writer's retries either
        await working
    except (HoldfastError, OSError, apsw.Error, asyncio.CancelledError):
        if not disk.off:
            raise
    finally:
        disk.off = True  # nothing that closing does may count
        await store.close()
    return acknowledged


async def _live(store: Store, disk: Disk, *, chance: random.Random, acknowledged: dict[str, RunRow]) -> None:
    row = await store.create(samples.new_run(), owner=samples.ALICE)
    acknowledged[row.id] = row
    for _ in range(_STEPS):
        payload = '"' + "x" * chance.choice([5, 50, 500, 5000]) + '"'
        step = samples.extend(row, *[Kind.done] * chance.randint(1, 4), payload=payload)
        if chance.random() < 0.5 and (applied := await samples.alone(store, step)) is not None:
            _expect(applied, disk)
        else:
            _expect(await _submitted(store, step), disk)
        row = acknowledged[row.id] = step.row
        if chance.random() < 0.2:
            sent = await store.send(samples.mail_for(row.id), wake=samples.left)
            row = acknowledged[row.id] = dataclasses.replace(row, mail=sent.number)
        if chance.random() < 0.2:
            row = acknowledged[row.id] = await _pause(store, disk, row)


async def _pause(store: Store, disk: Disk, row: RunRow) -> RunRow:
    """Park a run and claim it again."""
    park = samples.parked(row, Kind.started, mail=row.mail, wake_at=samples.START)
    _expect(await _submitted(store, park), disk)
    taken = samples.taken_over(park.row, wake_at=None)
    (is_ours,) = await store.claim_many([Claim(taken, row.epoch, None)], owner=samples.ALICE)
    if not is_ours:
        raise AssertionError("a parked run could not be claimed")
    return taken


async def _submitted(store: Store, step: Append) -> Applied | BaseException:
    future: asyncio.Future[Applied | BaseException] = asyncio.get_running_loop().create_future()
    store.submit(step, lambda result: None if future.done() else future.set_result(result), urgent=True)
    return await future


def _expect(applied: Applied | BaseException, disk: Disk) -> None:
    if applied is not Applied.committed:
        if disk.off:
            raise PowerLoss(5, "the power is off")
        raise AssertionError(f"not committed although the power is on: {applied!r}")


async def _inspect(path: Path, acknowledged: dict[str, RunRow]) -> str:
    store = SqliteStore(path)
    try:
        await store.open()
        try:
            if problems := await store.check():
                return f"damaged: {problems}"
            for run_id, row in acknowledged.items():
                loaded = await store.load(row.id)
                if loaded is None or loaded[0].head_seq < row.head_seq:
                    found = loaded[0].head_seq if loaded else "nothing"
                    return f"lost: {run_id} was acknowledged up to {row.head_seq}, found {found}"
                stored, records = loaded
                if (stored.epoch, stored.mail) < (row.epoch, row.mail):
                    return f"lost: {run_id} had epoch {row.epoch} and mail {row.mail}, found {stored}"
                if [mail.number for mail in await store.mail(row.id, after=0)] != list(range(1, stored.mail + 1)):
                    return f"broken: {run_id} does not have the {stored.mail} mail that its row counts"
                try:
                    check_records(stored, records)
                except CorruptJournal as broken:
                    return f"broken: {broken}"
        finally:
            await store.close()
    except HoldfastError as error:
        return f"refused: {error}"
    return ""


def sweep(
    trials: int, *, seed: int = 0, lying: bool = False, report: Callable[[Trial], None] | None = None
) -> list[Trial]:
    """Many power losses at random moments of the same kind of work; each is reproduced by its seed and moment."""
    done = []
    chance = random.Random(seed)  # noqa: S311
    root = Path(tempfile.mkdtemp(prefix="holdfast-powerloss-"))
    try:
        whole = run_trial(root / "whole", seed=seed, cut_at=None).operations
        for number in range(trials):
            directory = root / str(number)
            trial = run_trial(directory, seed=seed + number, cut_at=chance.randint(1, whole), lying=lying)
            done.append(trial)
            if report is not None:
                report(trial)
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return done


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    bad = [
        trial for trial in sweep(trials, report=lambda trial: print(trial) if trial.problem else None) if trial.problem
    ]
    print(f"{trials} power losses, {len(bad)} broken promises")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
