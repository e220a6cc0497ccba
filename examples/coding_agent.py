"""A coding agent: it clones a repository, works through a plan, runs the tests and opens a draft pull request.

python examples/coding_agent.py

Kill it anywhere (`kill -9`) and run it again: it goes on with the files that its last step left, pays for no answer
twice, and pushes its branch once. The remote is a bare repository next to it, the model is a table.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast as hf

REMOTE = Path("remote.git")
FILES = {
    "tides.py": "def is_high(hour: int) -> bool:\n    return hour % 24 == 0\n",
    "test_tides.py": "from tides import is_high\n\nassert is_high(0)\nassert is_high(12), 'there are two a day'\n",
}


def git(*words: str, cwd: Path | None = None) -> str:
    who = ("-c", "user.name=agent", "-c", "user.email=agent@example.org")
    return subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


# what your model does


@hf.step(retries=3)
async def propose(task: str, files: dict[str, str]) -> list[str]:
    """The plan for a task."""
    hf.usage(model="table", input_tokens=400, output_tokens=30, cost=0.05)
    return ["make the test pass", "say so in the changes"]


@hf.step(retries=3)
async def write(item: str, plan: str, files: dict[str, str]) -> dict[str, str]:
    """The files that change for an item of the plan."""
    hf.usage(model="table", input_tokens=600, output_tokens=80, cost=0.10)
    if "test" in item:
        return {"tides.py": files["tides.py"].replace("24", "12")}
    return {"CHANGES.md": f"{files.get('CHANGES.md', '')}- There are two tides a day.\n"}


# what it does to its files: each of these finds in the workspace what the last one left


@hf.step
def clone(repo: hf.Workspace, remote: str) -> dict[str, str]:
    git("clone", "--quiet", "--template=", remote, ".", cwd=repo.path)
    return files_in(repo.path)


@hf.step
def edit(repo: hf.Workspace, changes: dict[str, str]) -> dict[str, str]:
    for name, text in changes.items():
        (repo.path / name).write_text(text)
    return files_in(repo.path)


@hf.step
def test(repo: hf.Workspace) -> str:
    """What the tests complain of; nothing, if they pass."""
    command = [sys.executable, "-B", "test_tides.py"]
    return subprocess.run(command, cwd=repo.path, check=False, capture_output=True, text=True).stderr


@hf.step
def commit(repo: hf.Workspace, branch: str, message: str) -> str:
    git("switch", "--quiet", "--create", branch, cwd=repo.path)
    git("add", "--all", cwd=repo.path)
    git("commit", "--quiet", "--message", message, cwd=repo.path)
    return git("rev-parse", "HEAD", cwd=repo.path)


def files_in(path: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in sorted(path.iterdir()) if each.is_file()}


# what others see


@hf.effect(settle=0)  # 0: a repository on this disk cannot act late; leave the default for a server
def push(repo: hf.Workspace, branch: str, head: str) -> str:
    git("push", "--quiet", "origin", branch, cwd=repo.path)
    return head


@push.verify  # cut off in the middle? ask the remote
def find_pushed(repo: hf.Workspace, branch: str, head: str) -> hf.Verdict[str]:
    there = git("ls-remote", "origin", f"refs/heads/{branch}", cwd=repo.path)
    return hf.landed(head) if there.startswith(head) else hf.not_landed()


@hf.agent(budget=hf.Budget(cost=1.0, steps=50))  # at the limit it is blocked, until somebody raises it
async def fix(task: str, remote: str) -> str:
    repo = await hf.workspace("repo", ignore=["__pycache__"])
    files = await clone(repo, remote)
    todo = await hf.plan(await propose(task, files))
    while item := todo.next():
        files = await edit(repo, await write(item.text, todo.prompt(), files))
        await todo.tick(item)
    if complaint := await test(repo):
        await hf.artifact("complaint.txt", complaint)
        return "the tests fail"
    branch = f"agent/{hf.this_run().id}"
    head = await commit(repo, branch, task)
    await push(repo, branch, head)
    # At a forge this is an effect of its own, which opens the request, and whose `verify` finds it by the branch.
    await hf.artifact("pull-request", ref=f"{remote}#{branch}", kind="draft-pr")
    return f"draft pull request of {branch}, {len(todo.items)} items done"


def make_remote() -> None:
    """A repository with a test that fails; as a whole or not at all, since this too may be killed."""
    if REMOTE.exists():
        return
    with tempfile.TemporaryDirectory(dir=".") as folder:
        seed, remote = Path(folder, "seed"), Path(folder, "remote.git")
        seed.mkdir()
        for name, text in FILES.items():
            (seed / name).write_text(text)
        git("init", "--quiet", "--initial-branch=main", cwd=seed)
        git("add", "--all", cwd=seed)
        git("commit", "--quiet", "--message", "Begin", cwd=seed)
        git("clone", "--quiet", "--bare", str(seed), str(remote))
        remote.rename(REMOTE)


if __name__ == "__main__":
    make_remote()
    print(hf.run(fix("Two tides a day", str(REMOTE.resolve())), id="fix-1"))
