"""Commands with `--url`: what they do to a store, through a server."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.store.contract import Store
from holdfast.store.looks import LOOKS, look_of
from holdfast.store.served.store import ServedStore
from holdfast.store.surveys import Surveys
from tests.cli.commands import Commands
from tests.forkserver import ForkServer
from tests.server.test_serving import Server, serving

SEED = """
import asyncio

import holdfast as hf
from tests.eventually import eventually
from tests.server.agents import ALL, counting, doubting, dozing, echo, failing, keeper, refund, summing


async def seed() -> None:
    async with hf.connect(agents=ALL) as app:
        for way in ("near", "far"):
            calls = [echo("x"), counting(3), refund("ada"), refund("eva"), doubting(1), doubting(2), summing(2)]
            calls += [summing(3), failing(), dozing(), dozing(), keeper()]
            runs = [await app.start(call, id=f"{way}-{n}", thread_id=f"t-{way}-{n}") for n, call in enumerate(calls)]
            await app.schedule(f"{way}-nightly", echo("n"), cron="0 2 * * *")
            await app.on(f"{way}.paid", echo, name=f"{way}-orders")

            async def rests() -> bool:
                return not {"running", "queued"} & {await run.status() for run in runs}

            await eventually(rests)

asyncio.run(seed())
"""

#: What only looks: the same words, the same answer.
LOOKING = [
    "runs", "runs --json", "runs --status done --limit 2", "runs --agent nobody", "runs --since 1d --tag a=b",
    "show near-1", "show near-1 --json", "show near-1 --story", "show near-4 --journal",
    "show near-11 --journal --json", "show near-11 --after 2 --limit 3", "show nobody", "show near-",
    "watch --once", "watch near-1", "watch near-8",
    "receipt near-1", "receipt near-11 --json", "activity", "activity near-1 --json", "checkpoints near-11",
    "state near-11", "state near-11 --turn 9", "diff near-11 1 1", "plan near-11", "plan near-1", "artifacts near-11",
    "artifacts near-11 --json", "stream near-11", "stream near-11 out --json", "stream near-1", "thread t-near-11",
    "thread t-nobody", "questions", "questions --all --json", "questions near-2", "in-doubt", "in-doubt near-4 --json",
    "in-doubt near-1", "workers", "queues", "queues --json", "schedules", "schedules --json", "triggers",
    "triggers show near-orders", "triggers refused near-orders", "retention", "verify", "verify near-11 --json",
    "fork near-1 --dry-run", "fork near-1 --at 5 --dry-run --json", "fork near-1 --at 999 --dry-run",
    "prune --older-than 1h --dry-run", "prune --older-than 0s --dry-run --json", "check tests_agents.py",
]  # fmt: skip

#: What changes something, once to a run of one way and once to its twin.
ACTING = [
    "pause {0}-9 --note why", "pause {0}-9 {0}-0", "resume {0}-9", "resume {0}-0", "cancel {0}-9 --note enough",
    "artifacts {0}-10 --put tests_agents.py --note why", "artifacts {0}-10 --put tests_agents.py --json",
    "artifacts {0}-10 ../a --put tests_agents.py", "artifacts {0}-0 a --put tests_agents.py",
    "artifacts {0}-10 --put tests_agents.py --save a",
    "artifacts {0}-10 a/b.md --put tests_agents.py --media-type text/plain --json",
    "artifacts {0}-10 tests_agents.py",
    "cancel {0}-9", "cancel --agent nobody", "send {0}-6 number 4 --dedup d-1", "send {0}-6 number 4 --dedup d-1",
    "send {0}-6 number 5 --dedup d-1", "send {0}-6 number true", "send {0}-6 nothing 4", "send {0}-0 number 4",
    "send {0}-nobody number 4", "interrupt {0}-7 hello --no-wait", "interrupt {0}-0 hello", "interrupt {0}-1 hello",
    "answer {0}-2 maybe", "answer {0}-2 yes --note fine", "answer {0}-2 no", "answer {0}-3 yes --json",
    "decline {0}-3", "resolve {0}-4 --happened 5 --note seen --yes", "resolve {0}-4 pay#1 --happened 5 --note b --yes",
    "resolve {0}-5 pay#1 --fail no --note asked --yes --json", "resolve {0}-1 --not-happened --note b --yes",
    "fork {0}-1 --at 7 --id {0}-fork --note b", "fork {0}-1 --at 5 --id {0}-fork",
    'emit {0}.paid "a" --dedup {0}-e', 'emit {0}.paid "b" --dedup {0}-e', "schedules pause {0}-nightly --note b",
    "schedules pause {0}-none", "schedules resume {0}-nightly", "schedules backfill {0}-nightly --since 3d --yes",
    "schedules remove {0}-nightly --yes --note b", "triggers pause {0}-orders", "triggers resume {0}-orders",
    "triggers remove {0}-orders --yes --note b", "triggers pause {0}-none", "queues pause {0}-mail",
    "queues limit {0}-mail --concurrency 3 --rate 5/10s", "queues resume {0}-mail", "retention {0} --keep 30d --note b",
    "retention {0} --keep forever", "retention {0} --off", "prune --older-than 0s --agent {0} --yes",
]  # fmt: skip

#: What no server does.
HERE = [
    "run tests_agents.py:echo", "worker tests_agents.py", "serve", "console", "migrate", "backup to.db", "doctor",
    "copy a.db b.db", "resume near-1 tests_agents.py", "retry near-8 tests_agents.py", "pause near-9 --by eva",
]  # fmt: skip


@pytest.fixture
def hf(tmp_path: Path, forkserver: ForkServer) -> Commands:
    commands = Commands(tmp_path, forkserver)
    (tmp_path / "tests_agents.py").write_text("from tests.server.agents import *\n")
    commands.environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    return commands


@contextmanager
def served(hf: Commands, *arguments: str) -> Iterator[Server]:
    seeded = hf.execute(SEED)
    assert seeded.code == 0, seeded.err
    with serving(hf, *arguments) as server:
        hf.environment["HOLDFAST_TOKEN"] = server.token
        yield server


def told(code: int, text: str, server: Server, hf: Commands) -> tuple[int, str]:
    """What a command said, without what is different by its nature."""
    url = f"http://127.0.0.1:{server.port}"
    text = text.replace(f" --url {url}", "").replace(url, "STORE")
    text = re.sub(r" to take it up[:.].*|, or now: .*|(?<=error: ).*othing was changed.*", "", text)
    text = re.sub(rf"(sqlite:///)?{re.escape(str(hf.store))}", "STORE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(\+00:00)?", "TIME", text)
    return code, re.sub(r"\b(near|far)\b", "WAY", re.sub(r"[et]_\w{8,}|q_\w+|\bhf-\w+", "ID", text))


def compared(
    commands: list[str], near: list[tuple[int, str]], far: list[tuple[int, str]], server: Server, hf: Commands
) -> list[object]:
    pairs = [(told(*one, server, hf), told(*other, server, hf)) for one, other in zip(near, far, strict=True)]
    return [(words, *pair) for words, pair in zip(commands, pairs, strict=True) if pair[0] != pair[1]]


def test_every_command_says_the_same_of_a_store_and_of_a_server(hf: Commands) -> None:
    with served(hf) as server:
        url = f"http://127.0.0.1:{server.port}"
        near = hf.batch([each.split() for each in LOOKING], is_terminal=False)
        far = hf.batch([[*each.split(), "--url", url] for each in LOOKING], is_terminal=False)
        assert compared(LOOKING, near, far, server, hf) == []
        assert {code for code, _ in near} == {0, 1, 2, 3}
        near = hf.batch([each.format("near").split() for each in ACTING], is_terminal=False)
        far = hf.batch([[*each.format("far").split(), "--url", url] for each in ACTING], is_terminal=False)
        assert compared(ACTING, near, far, server, hf) == []
        assert {code for code, _ in near} == {0, 2, 3, 5}
        refused = hf.batch([[*words.split(), "--url", url] for words in HERE], is_terminal=False)
        assert [(code, "server" in text) for code, text in refused] == [(2, True)] * len(HERE), refused
        acts = hf("activity", "--json", "--limit", "200").json["items"]
        assert {each["what"] for each in acts if each["via"] == "api"} == {
            each["what"] for each in acts if each["via"] == "cli"
        }, "each act leaves the same trace, with its way"


def test_a_server_hands_runs_to_workers(hf: Commands) -> None:
    with served(hf, "tests_agents.py", "--worker") as server:
        hf.environment["HOLDFAST_URL"] = f"http://127.0.0.1:{server.port}/"
        again = hf("retry", "near-8", "--note", "again")
        assert (again.code, again.out) == (0, "Run near-8 is open again; a worker takes it up.\n")
        assert hf("watch", "near-8").code == 1
        assert hf("interrupt", "near-7", "how far").out == "how far: fine\n"
        assert hf("retry", "near-0").code == 2
        reply = hf("resume", "near-10", "--json")
        assert [each["outcome"] for each in reply.json["items"]] == ["handed to the workers"]
        assert hf("demo", "--help").code == 0


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(308)
            self.send_header("Location", "https://elsewhere.example/api")
        else:
            self.send_response(200)
        self.end_headers()
        if not self.path.startswith("/moved"):
            self.wfile.write(b"[1]" if self.path.startswith("/json") else b"<html>")

    def log_message(self, *args: object) -> None: ...


def test_what_cannot_be_reached_is_a_sentence(hf: Commands) -> None:
    with serving(hf) as server:
        url = f"http://127.0.0.1:{server.port}"
        page = http.server.HTTPServer(("127.0.0.1", 0), _Elsewhere)
        threading.Thread(target=page.serve_forever, daemon=True).start()
        other = f"http://127.0.0.1:{page.server_port}"
        for given, code, says in (
            (url, 1, "wants a token: put it into HOLDFAST_TOKEN"),
            (f"{url}/#t=wrong", 1, "does not know the token"),
            (f"http://0.0.0.0:{server.port}", 2, "is not served under this name"),
            (f"https://127.0.0.1:{server.port}", 1, "cannot be trusted"),
            (f"{url}/elsewhere/#t={server.token}", 2, "another version of Holdfast, or something else"),
            ("http://127.0.0.1:1", 1, "nobody listens there"),
            ("http://nowhere.invalid", 1, "there is no such host"),
            ("http://127.0.0.1:99999", 2, "The port of http://127.0.0.1:99999 is none"),
            ("http://me:secret@127.0.0.1:1", 2, "its token is not in it"),
            ("ftp://127.0.0.1", 2, "a server is http://HOST:PORT"),
            (f"{other}/moved", 2, "sends on to https://elsewhere.example/api"),
            (f"{other}/page", 2, "is no Holdfast server"),
            (f"{other}/json", 2, "is no Holdfast server"),
        ):
            said = hf("runs", "--url", given)
            assert (said.code, said.out, says in said.err) == (code, "", True), (given, said)
            assert not re.search("secret|t=", said.err)
        page.shutdown()
        page.server_close()
        both = hf("runs", "--url", url, "--db", "x.db")
        assert (both.code, "not both" in both.err) == (2, True)
        with_token = hf("runs", "--url", f"{url}/#t={server.token}")
        assert (with_token.code, "can be read by all users" in with_token.err) == (0, True)
        assert server.token not in with_token.err + with_token.out


def test_looks_are_methods_of_a_store_that_change_nothing() -> None:
    for name in LOOKS:
        owner = Surveys if name.startswith("surveys.") else Store
        assert hasattr(owner, name.removeprefix("surveys.")), name
        assert look_of(name).gives is not None
    with pytest.raises(Exception, match="cannot be done to a store behind a server"):
        ServedStore("http://127.0.0.1:1").__getattr__("append")
    assert json.loads(json.dumps(look_of("runs").read({"which": {}})["which"].limit)) == 50
