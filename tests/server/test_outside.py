"""Those who come without a credential: with a link that decides one question, or with a delivery that is signed."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from holdfast.errors import UsageError
from holdfast.server import create_app
from holdfast.server.security.hooks import Hooks
from holdfast.server.security.links import Link, Links
from tests.server.agents import echo
from tests.server.scene import BASE, Scene, played
from tests.server.signing import SECRET, SHARED, signed


class Stranger:
    """Somebody without a token."""

    def __init__(self, scene: Scene) -> None:
        self._http = scene.client(token=None, peer="10.0.0.7")
        scene._more.append(self._http)

    async def posts(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        answer = await self._http.post(path, json=body, headers=headers)
        return answer.status_code, answer.json()

    async def gets(self, path: str, method: str = "GET") -> httpx.Response:
        return await self._http.request(method, path)


async def asked(scene: Scene, run: str) -> tuple[dict[str, Any], str]:
    """A question, and the key of a link to it."""
    await scene.start("refund", run, "waiting", customer="ada")
    question = (await scene.get(f"/questions?run={run}"))["items"][0]
    made = await scene.post(f"/questions/{question['id']}/links", {"audience": "ana@example.org"}, 201)
    assert made["path"] == f"/q/{question['id']}#k={made['key']}"
    return question, made["key"]


def test_a_link_decides_its_question_once_in_the_name_of_its_audience(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        question, key = await asked(scene, "r1")
        ana = Stranger(scene)
        where = f"/q/{question['id']}"
        for method in ("GET", "HEAD", "OPTIONS"):
            page = await ana.gets(where, method)
            assert "ada" not in page.text, "nothing is shown without the key"
        assert (await ana.gets(f"{where}/link.js")).headers["content-type"].startswith("text/javascript")
        assert (await scene.get(f"/questions/{question['id']}"))["state"] == "open", "a look decides nothing"
        status, shown = await ana.posts(where, {"key": key})
        assert (status, shown["prompt"]) == (200, "Pay 40 back to ada?")
        status, told = await ana.posts(f"{where}/answer", {"key": key, "value": True, "note": "fine"})
        assert (status, told["decided_by"], told["note"]) == (200, "ana@example.org", "fine")
        assert (await ana.posts(f"{where}/answer", {"key": key, "value": True, "note": "fine"}))[0] == 200, "a retry"
        assert (await ana.posts(f"{where}/answer", {"key": key, "value": False}))[0] == 409
        await scene.until("r1", "done")
        (act,) = [each for each in (await scene.get("/activity?run=r1"))["items"] if each["via"] == "link"]
        assert (act["by"], act["what"], act["target"]) == ("ana@example.org", "answer", question["id"])

    played(tmp_path, play)


def test_a_link_that_was_altered_opens_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        question, key = await asked(scene, "r1")
        other, other_key = await asked(scene, "r2")
        links: Links = scene.api.state.service.links
        in_an_hour = int(time.time()) + 3600
        said, _, mac = key.partition(".")
        forged = base64.urlsafe_b64encode(json.dumps([question["shown"], ["answer"], "eve", in_an_hour]).encode())
        shown = question["shown"]
        no_longer = links.key(Link(question["id"], shown, ("answer",), "ana", int(time.time()) - 1))
        changed = links.key(Link(question["id"], "another", ("answer",), "ana", in_an_hour))
        only_decline = links.key(Link(question["id"], shown, ("decline",), "ana", in_an_hour))
        of_others = Links("another token").key(Link(question["id"], shown, ("answer",), "ana", in_an_hour))
        for number, (bad, status) in enumerate(
            {
                other_key: 403,
                f"{forged.decode().rstrip('=')}.{mac}": 403,
                f"{said}.": 403,
                f"{said}.{mac[:-2]}AA": 403,
                "x" * 1999: 403,
                no_longer: 403,
                of_others: 403,
                only_decline: 403,
                changed: 409,
            }.items()
        ):
            eve = scene.client(token=None, peer=f"10.0.1.{number}")
            scene._more.append(eve)
            answer = await eve.post(f"/q/{question['id']}/answer", json={"key": bad, "value": True})
            assert answer.status_code == status, (bad, answer.text)
            assert "ada" not in answer.text or status == 409
        assert (await scene.get(f"/questions/{question['id']}"))["state"] == "open"
        mallory = Stranger(scene)
        tries = [(await mallory.posts(f"/q/{question['id']}", {"key": "x"}))[0] for _ in range(12)]
        assert tries == [403] * 10 + [429] * 2
        status, shown = await mallory.posts(f"/q/{other['id']}", {"key": other_key})
        assert (status, shown["prompt"]) == (200, "Pay 40 back to ada?"), (
            "who has a key is not kept out by who has none"
        )
        page = await mallory.gets(f"/q/{other['id']}")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]

    played(tmp_path, play)


def test_a_signed_delivery_starts_one_run_and_any_other_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        access = scene.access
        hooks = Hooks.of(
            {"shop": {"event": "paid", "secrets": [SHARED, "whsec_" + base64.b64encode(b"x" * 24).decode()]}}
        )
        scene.api = create_app(
            scene.app, access=type(access)(access.token, access.hosts, hooks=hooks, port=access.port)
        )
        await scene.app.on("paid", echo, name="ship")
        number = 0

        async def deliver(body: bytes, headers: dict[str, str], name: str = "shop", peer: str = "") -> int:
            nonlocal number
            number += 1
            transport = httpx.ASGITransport(app=scene.api, client=(peer or f"10.1.0.{number}", 1))
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as shop:
                return (await shop.post(f"/hooks/{name}", content=body, headers=headers)).status_code

        body, now = b'"order 7"', int(time.time())
        assert await deliver(body, signed(body, "d1")) == 202
        assert await deliver(body, signed(body, "d1", at=now - 60)) == 202, "delivered again"
        assert await deliver(b'"another"', signed(b'"another"', "d1")) == 202, "the id was taken"
        assert await deliver(body, signed(body, "d2", secret=b"x" * 24)) == 202, "the next secret"
        good = signed(body, "d3")
        for bad in (
            {},
            {**good, "webhook-id": "d4"},
            {**good, "webhook-timestamp": str(now - 1)},
            {**good, "webhook-signature": "v1," + base64.b64encode(b"x" * 32).decode()},
            {**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v1a,")},
            {**good, "webhook-signature": ""},
            signed(body, "d3", at=now - 301),
            signed(body, "d3", at=now + 400),
            signed(body, "d3", secret=b"y" * 24),
        ):
            assert await deliver(body, bad) == 401, bad
        assert await deliver(b'"order  7"', good) == 401, "another body"
        assert await deliver(body, good, "nobody") == 401
        assert await deliver(b"{", signed(b"{", "d5")) == 400
        tries = [await deliver(body, {}, peer="10.1.1.1") for _ in range(12)]
        assert tries == [401] * 10 + [429] * 2
        assert await deliver(body, signed(body, "d1"), peer="10.1.1.1") == 202, "a proxy has one address for all"
        large = b'"' + b"x" * 1_100_000 + b'"'
        assert await deliver(large, signed(large, "d6")) == 413
        runs = (await scene.get("/runs?agent=echo"))["items"]
        assert len(runs) == 2

    played(tmp_path, play)


def test_hooks_need_secrets_that_nobody_else_can_read(tmp_path: Path) -> None:
    file = tmp_path / "hooks.toml"
    file.write_text(f'[shop]\nevent = "paid"\nsecret = "{SHARED}"\n')
    file.chmod(0o644)
    with pytest.raises(UsageError, match="others can read it"):
        Hooks.in_file(file)
    file.chmod(0o600)
    assert Hooks.in_file(file).known["shop"].secrets == (SECRET,)
    for bad in ({"event": "x"}, {"secret": SHARED}, {"event": "x", "secret": "whsec_AAAA"}, {"event": "x", "skip": 1}):
        with pytest.raises(UsageError, match="shop"):
            Hooks.of({"shop": bad})
