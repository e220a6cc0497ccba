"""Agents that put files out, and that work in directories."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import holdfast as hf

#: More than one chunk, and the same each time.
LARGE = bytes(range(256)) * 1200


def world() -> Path:
    return Path(os.environ["HOLDFAST_TEST_FOLDER"])


def note(what: str) -> None:
    with (world() / "acts").open("a") as acts:
        acts.write(f"{what}\n")


# artifacts


@hf.step
async def draft(text: str) -> hf.Artifact:
    await hf.artifact("data/large.bin", LARGE)
    return await hf.artifact("draft.md", text)


@hf.step(retries=1)
def plot(number: int) -> int:
    is_first = hf.this_step().attempt == 1
    hf.artifact("plots/failed.png" if is_first else "plots/plot.png", bytes([number]) * 10).result()
    if is_first:
        raise ValueError("the first attempt leaves none")
    return number


@hf.effect(on_doubt="retry")
async def open_request(branch: str) -> str:
    note(f"request {branch}")
    await hf.artifact("pull-request", ref=f"https://example.org/{branch}", kind="draft-pr")
    return branch


@hf.agent
async def author(text: str) -> list[object]:
    first = await draft(text)
    again, third = await asyncio.gather(draft(text), draft(text + "!"))
    await plot(7)
    own = await hf.artifact("summary.txt", f"of {text}")
    await open_request("draft")
    return [first.version, again.version, third.version, own.version, (await own.read()).decode()]


# workspaces


@hf.step
async def build(repo: hf.Workspace, number: int) -> list[str]:
    found = tree(repo.path)
    (repo.path / "src").mkdir(exist_ok=True)
    (repo.path / f"src/{number}.py").write_text(f"print({number})\n")
    if number == 2:
        (repo.path / "src/1.py").unlink()
        (repo.path / "empty/inner").mkdir(parents=True)
        (repo.path / "run.sh").write_text("make")
        (repo.path / "run.sh").chmod(0o750)
        (repo.path / "latest").symlink_to("src/2.py")
        (repo.path / "large").write_bytes(LARGE)
    return found


@hf.step(retries=1)
def break_it(repo: hf.Workspace) -> list[str]:
    found = tree(repo.path)
    shutil.rmtree(repo.path / "src")
    (repo.path / "junk").write_text("half")
    (repo.path / "run.sh").chmod(0o600)
    if hf.this_step().attempt == 1:
        raise ValueError("taken back")
    (repo.path / "src").mkdir()
    return found


@hf.effect(on_doubt="retry", settle=0)
async def push(repo: hf.Workspace) -> int:
    note("push")
    (repo.path / "pushed").write_text("yes")
    await hf.artifact("release", path=repo.path / "large")
    return repo.version


@push.verify
async def find_pushed(repo: hf.Workspace) -> hf.Verdict[int]:
    return hf.not_landed() if (repo.path / "junk").exists() else hf.landed(-1)


@hf.agent
async def coder(number: int) -> list[object]:
    repo = await hf.workspace("repo", ignore=["*.pyc"])
    before = await build(repo, 1)
    between = await build(repo, 2)
    after = await break_it(repo)
    pushed = await push(repo)
    return [before, between, after, pushed, repo.version]


def tree(path: Path) -> list[str]:
    """What lies in a directory: names, modes, targets, sizes."""
    found = []
    for each in sorted(path.rglob("*")):
        name = str(each.relative_to(path))
        if each.is_symlink():
            found.append(f"{name} -> {os.readlink(each)}")
        elif each.is_dir():
            found.append(f"{name}/")
        else:
            found.append(f"{name} {each.stat().st_mode & 0o777:o} {each.stat().st_size}")
    return found


#: What `coder` ends with.
BUILT = [
    [],
    ["src/", "src/1.py 644 9"],
    [
        "empty/",
        "empty/inner/",
        f"large 644 {len(LARGE)}",
        "latest -> src/2.py",
        "run.sh 750 4",
        "src/",
        "src/2.py 644 9",
    ],
    3,
    4,
]


# held in the middle


def wait_at(gate: str) -> None:
    """Say that this process is here, and wait until it may go on."""
    with (world() / f"{gate}.reached").open("a") as reached:
        reached.write(f"{os.getpid()}\n")
    while not (world() / f"{gate}.open.{os.getpid()}").exists():
        time.sleep(0.01)


@hf.step
def held(repo: hf.Workspace, gate: str) -> list[str]:
    found = tree(repo.path)
    (repo.path / f"of-{os.getpid()}").write_text("here")
    hf.artifact("who", str(os.getpid())).result()
    wait_at(gate)
    (repo.path / "end").write_text("end")
    return found


@hf.agent
async def holding(gate: str) -> list[list[str]]:
    repo = await hf.workspace("repo")
    await build(repo, 1)
    return [await held(repo, gate), await build(repo, 3)]
