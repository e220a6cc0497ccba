"""A run is killed at its N-th system call, its disk fails, fills up or is slow: nothing acknowledged is lost.

strace counts per thread, so with `when=N` the first thread to reach its N-th call dies. A fresh store covers the
thread that creates it, a store that exists covers the writer's thread, a longer run the event loop's thread.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.testing import Ledger, check_history
from holdfast.testing.processes import Lane, Order, environment
from tests.crash import acknowledging

STRACE = shutil.which("strace")
SCRIPT = acknowledging.__file__
WRITES = "pwrite64,fdatasync,ftruncate,unlink"


def why_not_strace() -> str:
    if STRACE is None:
        return "strace is not installed"
    tried = subprocess.run([STRACE, "-o", os.devnull, "-e", "trace=none", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"strace does not work here: {tried.stderr.decode().strip()[:200]}"


WHY_NOT = why_not_strace()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@dataclass
class Ended:
    """How a straced process ended, and what it told its parent before that."""

    code: int
    acks: list[tuple[str, str]]
    errors: str
    command: str


@dataclass
class Scene:
    """A folder with a store, a ledger and an outside world."""

    folder: Path
    acks: list[tuple[str, str]] = field(default_factory=list)
    outside: Path | None = None  #: for a ledger and a world on another file system

    @property
    def url(self) -> str:
        return str(self.folder / "store.db")

    @property
    def env(self) -> dict[str, str]:
        outside = self.outside or self.folder
        return {"HOLDFAST_LEDGER": str(outside / "ledger.jsonl"), "HOLDFAST_TEST_FOLDER": str(outside)}

    def run(self, *inject: str, agent: str = "queued", n: int = 2, run_id: str = "r", timeout_s: float = 60) -> Ended:
        """The run, under strace."""
        traced = ",".join(dict.fromkeys(name for each in inject for name in each.partition(":")[0].split(",")))
        options = [option for each in inject for option in ("-e", f"inject={each}")]
        command = [STRACE or "", "-f", "-o", os.devnull, "-e", f"trace={traced}", *options]
        command += [sys.executable, SCRIPT, self.url, run_id, agent, str(n)]
        shown = " ".join([f"{name}={value}" for name, value in self.env.items()] + command)
        with subprocess.Popen(
            command, env=environment(self.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                out, err = process.communicate()
        told = [line.split(" ") for line in out.decode().splitlines()]
        acks = [(words[0], words[1] if len(words) > 1 else "") for words in told]
        self.acks += acks
        return Ended(process.returncode, acks, err.decode(), shown)

    def resume(self, lane: Lane, *, agent: str = "queued", n: int = 2, run_id: str = "r") -> None:
        """The run again, with nothing in its way: it must come to its end."""
        order = Order(SCRIPT, agent, run_id, self.url, f'{{"n":{n}}}', self.env, self.folder / "log.txt")
        assert lane.run(order, 60) == 0, (self.folder / "log.txt").read_text()

    def violations(self, run_id: str = "r") -> list[str]:
        return check_history(self.url, Ledger(self.env["HOLDFAST_LEDGER"]), acks=[*self.acks, (run_id, "finished")])

    def once(self) -> bool:
        """Did every change of the world happen once?"""
        path = (self.outside or self.folder) / "happened.txt"
        times = Counter(path.read_text().split()) if path.exists() else Counter[str]()
        return set(times.values()) <= {1}


@pytest.fixture(scope="module")
def lanes() -> Iterator[list[Lane]]:
    with Lane() as first, Lane() as second:
        yield [first, second]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that exists and has had a run."""
    scene = Scene(tmp_path_factory.mktemp("template"))
    done = scene.run("unlink:when=9999:signal=CONT", run_id="before")
    assert done.code == 0, done.errors
    return scene.folder


def sweep(
    numbers: Sequence[int],
    lanes: list[Lane],
    folder: Path,
    *,
    inject: Callable[[int], str],
    template: Path | None = None,
    agent: str = "queued",
    n: int = 2,
    allowed: tuple[int, ...] = (),
) -> Counter[int]:
    """Run with each fault, resume, compare; exit codes, counted. Stops where kills no longer reach the run."""
    free = list(lanes)
    ended: Counter[int] = Counter()

    def one(number: int) -> int:
        scene = Scene(folder / f"{inject(number).partition(':')[0].partition(',')[0]}-{number}")
        if template is None:
            scene.folder.mkdir()
        else:
            shutil.copytree(template, scene.folder)
        lane = free.pop()
        try:
            fault = inject(number)
            died = scene.run(fault, agent=agent, n=n)
            again = f"\nto see it again: {died.command}\n{died.errors}"
            assert died.code in (0, -9, *allowed), f"{fault}: code {died.code}{again}"
            assert "Traceback" not in died.errors, f"{fault}{again}"
            scene.resume(lane, agent=agent, n=n)
            assert scene.violations() == [], f"{fault}{again}"
            assert scene.once(), f"{fault}: a change happened twice{again}"
        finally:
            free.append(lane)
        shutil.rmtree(scene.folder)
        return died.code

    with ThreadPoolExecutor(len(lanes)) as threads:
        for start in range(0, len(numbers), 8):
            codes = list(threads.map(one, numbers[start : start + 8]))
            ended.update(codes)
            if inject is kill and set(codes) == {0}:
                break
    print(f"{inject(0)}: {sum(ended.values())} runs, exit codes {dict(ended)}")
    return ended


def kill(number: int) -> str:
    return f"{WRITES}:signal=KILL:when={number}"


# kill -9 at every system call that changes a file


def test_killed_at_any_write_of_the_writers_thread(lanes: list[Lane], template: Path, tmp_path: Path) -> None:
    ended = sweep(range(1, 100, 14), lanes, tmp_path, inject=kill, template=template, n=6)
    assert ended[-9] > 3


def test_killed_while_the_store_is_created(lanes: list[Lane], tmp_path: Path) -> None:
    assert sweep(range(1, 60, 12), lanes, tmp_path, inject=kill)[-9] >= 3


def test_killed_at_writes_on_the_event_loop(lanes: list[Lane], template: Path, tmp_path: Path) -> None:
    ended = sweep(range(26, 60, 7), lanes, tmp_path, inject=kill, template=template, agent="inline", n=8)
    assert ended[-9] > 3


@pytest.mark.prove
def test_killed_at_any_write_of_any_thread(lanes: list[Lane], template: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("fresh", "inline", "queued")]
    for folder in folders:
        folder.mkdir()
    ended = sweep(range(1, 400), lanes, folders[0], inject=kill, agent="inline", n=5)
    ended += sweep(range(1, 400), lanes, folders[1], inject=kill, template=template, agent="inline", n=20)
    ended += sweep(range(1, 400), lanes, folders[2], inject=kill, template=template, n=10)
    print(ended)


# the disk reports errors. 4 is a clear message of ours on standard error.


def test_a_failed_sync_is_never_taken_for_success(lanes: list[Lane], template: Path, tmp_path: Path) -> None:
    ended = sweep(
        range(1, 11, 2),
        lanes,
        tmp_path,
        inject=lambda number: f"fdatasync:error=EIO:when={number}",
        template=template,
        allowed=(4,),
    )
    assert ended[0], "at least one run went on by itself, over another connection"


def test_a_failed_read_is_a_clear_error(lanes: list[Lane], template: Path, tmp_path: Path) -> None:
    """`when` counts the reads of the interpreter's own start as well, a handful."""
    ended = sweep(
        [7, 11, 17, 25, 40],
        lanes,
        tmp_path,
        inject=lambda number: f"pread64:error=EIO:when={number}",
        template=template,
        allowed=(1, 4, 127),
    )
    print(ended)


# the disk is full


def test_a_disk_that_is_full_for_a_while_only_delays_a_run(lanes: list[Lane], template: Path, tmp_path: Path) -> None:
    ended = sweep(
        [3, 9, 20, 24, 28, 33],
        lanes,
        tmp_path,
        inject=lambda number: f"pwrite64:error=ENOSPC:when={number}..{number + 1}",
        template=template,
        allowed=(4,),
    )
    assert ended[0], "at least one run went on by itself"


def test_a_disk_that_stays_full_loses_nothing(lanes: list[Lane], template: Path, tmp_path: Path) -> None:
    for number in (12, 21, 26):
        scene = Scene(tmp_path / str(number))
        shutil.copytree(template, scene.folder)
        ended = scene.run(f"pwrite64:error=ENOSPC:when={number}+", n=6, timeout_s=2)
        assert ended.code in (-9, 4), ended.errors
        scene.resume(lanes[0], n=6)
        assert scene.violations() == [], ended.command
        assert scene.once()


def test_a_run_on_a_full_file_system_goes_on_when_there_is_space(lanes: list[Lane], tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    mounted.mkdir()
    tried = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "holdfast-test", str(mounted)], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted: {tried.stderr.decode().strip()}")
    try:
        scene = Scene(mounted, outside=tmp_path)
        assert scene.run("unlink:when=9999:signal=CONT", run_id="before").code == 0
        ballast = mounted / "ballast"
        fill(ballast)
        command = [sys.executable, SCRIPT, scene.url, "r", "queued", "40"]
        with subprocess.Popen(
            command, env=environment(scene.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                process.wait(1.5)
            except subprocess.TimeoutExpired:
                pass
            else:
                pytest.fail(f"it did not wait for space: {process.communicate()[1].decode()}")
            ballast.unlink()
            try:
                _, errors = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            assert process.returncode == 0, errors
        assert scene.violations() == []
        assert scene.once()
        shutil.copytree(mounted, tmp_path / "kept", ignore=shutil.ignore_patterns("ballast"))
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def fill(ballast: Path) -> None:
    """Leave some 120 kB: enough to start the run, not to finish it."""
    free = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        file.write(b"\0" * (free.f_bavail * free.f_frsize - 120_000))


# the disk is slow


def test_a_slow_disk_does_not_hold_up_the_event_loop(template: Path, tmp_path: Path) -> None:
    scene = Scene(tmp_path / "slow")
    shutil.copytree(template, scene.folder)
    ended = scene.run("fdatasync:delay_enter=200000", agent="ticking", n=4)
    assert ended.code == 0, ended.errors
    found = re.search(r"ticks (\d+) of (\d+)", ended.errors)
    assert found, ended.errors
    ticks, possible = int(found[1]), int(found[2])
    print(ended.errors)
    assert ticks > possible * 0.5, "the loop was held up by the disk"
    assert scene.violations() == []


# at random, with more runs


@pytest.mark.prove
def test_killed_at_random_again_and_again(lanes: list[Lane], tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print(f"SEED={seed} python -m pytest -m prove {__file__} -k random")
    chance = random.Random(seed)
    for life in range(100):
        scene = Scene(tmp_path / str(life))
        scene.folder.mkdir()
        agent, n = chance.choice(["inline", "queued"]), chance.randint(1, 8)
        for _ in range(chance.randint(1, 4)):
            if scene.run(kill(chance.randint(1, 150)), agent=agent, n=n).code == 0:
                break
        scene.resume(lanes[0], agent=agent, n=n)
        assert scene.violations() == [], f"SEED={seed}, life {life}"
        assert scene.once(), f"SEED={seed}, life {life}"
        shutil.rmtree(scene.folder)
