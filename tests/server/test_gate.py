"""What every request passes: each check is made on every operation that there is."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import pytest

from holdfast.server.console.files import PAGES
from holdfast.server.security.headers import HEADERS
from holdfast.server.security.people import Role
from holdfast.server.security.proxies import Proxies
from tests.server.routes import FILES, LINKS, OPEN, SIGNED, Operation, operations
from tests.server.scene import BASE, TOKEN, Scene, played

PEOPLE = {"vera": Role.viewer, "otto": Role.operator, "anna": Role.admin}
WRONG_HOSTS = [
    "evil.test",
    "127.0.0.1.evil.test:7788",
    "localhost.evil.test",
    "localhost:7789",
    "127.0.0.1",
    "[::1]:80",
    "[::ffff:127.0.0.1]:7788",
    "0.0.0.0:7788",
    "localhost:7788@evil.test",
    "localhost:7788, evil.test",
    "",
]


async def ask(client: httpx.AsyncClient, operation: Operation, **headers: str) -> httpx.Response:
    if operation.body is None:
        return await client.request(operation.method, operation.url, headers=headers)
    return await client.request(operation.method, operation.url, json=operation.body, headers=headers)


def kind(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found = answer.json()
    assert found["status"] == answer.status_code
    return str(found["type"]).removeprefix("/problems/")


def test_there_are_operations_and_each_says_who_may_use_it(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        found = operations(scene.api)
        assert len(found) > 40
        assert {each.name for each in found if each.role is None} == OPEN
        assert len({each.name for each in found}) == len(found)

    played(tmp_path, play, options={"executes": False})


def test_nobody_gets_in_without_a_credential(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        nobody = scene.client(token=None)
        for operation in operations(scene.api):
            if operation.name == "health":
                assert (await ask(nobody, operation)).json() == {"is_alive": True}
            elif operation.name in SIGNED | LINKS:
                answer = await ask(nobody, operation)
                assert not operation.is_unsafe or kind(answer) in ("signature", "link"), operation
                assert "x" * 3 not in answer.text
            else:
                answer = await ask(nobody, operation)
                assert kind(answer) == "sign_in", operation
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/api/v1/openapi.json", "/docs", "/api/v1/nothing", "/staticx", "/runsx"):
            assert kind(await nobody.get(path)) == "sign_in"
        for credential in ("Basic dTpw", "Bearer", "Bearer  ", f"bearer {TOKEN}x", "Token x", "\xff"):
            answer = await scene.client(token=None, peer="10.1.1.1").get(
                "/api/v1/runs", headers={b"authorization": credential.encode("latin-1")}
            )
            assert kind(answer) == "sign_in", credential

    played(tmp_path, play, options={"executes": False})


def test_another_host_is_refused_before_anything_else(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for client in (scene.http, scene.client(token=None)):
            for operation in operations(scene.api):
                for host in WRONG_HOSTS:
                    assert kind(await ask(client, operation, host=host)) == "wrong_host", (operation, host)

    played(tmp_path, play, options={"executes": False})


def test_own_names_are_served(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for host in ("localhost:7788", "127.0.0.1:7788", "[::1]:7788", "LOCALHOST:7788"):
            assert (await scene.http.get("/api/v1/store", headers={"host": host})).status_code == 200

    played(tmp_path, play, options={"executes": False})


def test_every_response_has_the_headers_and_none_lets_other_origins_read(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        origin = {"origin": "https://evil.test", "access-control-request-method": "POST"}
        for operation in operations(scene.api):
            answers = [
                await ask(scene.http, operation),
                await ask(scene.http, operation, **origin),
                await ask(scene.client(token=None), operation, **origin),
                await ask(scene.http, operation, host="evil.test"),
                await scene.http.options(operation.path, headers=origin),
            ]
            for answer in answers:
                assert not [name for name in answer.headers if name.startswith("access-control")], operation
                for name, value in HEADERS.items():
                    if operation.name == "download" and answer.status_code == 200:
                        continue  # it has a stricter one; see test_reading
                    assert answer.headers.get_list(name) == [value], (operation, name)
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
                assert "server" not in answer.headers

    played(tmp_path, play)


ELSEWHERE: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"origin": "https://evil.test"},
    {"origin": "null"},
    {"origin": "http://localhost:7789"},
    {"origin": "http://localhost:7788.evil.test"},
]


def test_what_changes_something_comes_from_our_own_pages_or_from_no_page(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for operation in operations(scene.api):
            if operation.is_unsafe and operation.name not in SIGNED:
                for headers in ELSEWHERE:
                    assert kind(await ask(scene.http, operation, **headers)) == "origin", (operation, headers)

    played(tmp_path, play, options={"executes": False})


def test_what_a_page_can_send_without_asking_is_not_taken(tmp_path: Path) -> None:
    simple = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", ""]

    async def play(scene: Scene) -> None:
        for operation in operations(scene.api):
            if operation.method in ("POST", "PUT") and operation.name not in SIGNED:
                for media in simple:
                    headers = {"content-type": media} if media else {}
                    answer = await scene.http.request(operation.method, operation.url, content=b"{}", headers=headers)
                    assert kind(answer) == ("not_bytes" if operation.name in FILES else "not_json"), operation

    played(tmp_path, play, options={"executes": False})


def test_with_a_cookie_a_request_that_changes_something_needs_our_header_and_site(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        browser = scene.client(token=None)
        answer = await browser.post("/session", json={"token": TOKEN}, headers={"sec-fetch-site": "same-origin"})
        assert answer.status_code == 200, answer.text
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("hf-7788=")
        assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"))
        assert TOKEN not in cookie
        assert (await browser.get("/api/v1/runs")).status_code == 200
        for operation in operations(scene.api):
            if not operation.is_unsafe or operation.name in {"sign_in", "sign_out"} | SIGNED | LINKS:
                continue
            ours = {"sec-fetch-site": "same-origin", "x-holdfast": "1"}
            for missing in ours:
                given = {name: value for name, value in ours.items() if name != missing}
                assert kind(await ask(browser, operation, **given)) == "origin", (operation, missing)
            answer = await ask(browser, operation, **ours)
            assert answer.status_code in (200, 201, 202) or kind(answer) != "origin", operation

    played(tmp_path, play, options={"executes": False})


def test_a_session_ends_when_its_person_says_so(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        browser = scene.client(token=None)
        await browser.post("/session", json={"token": TOKEN})
        kept = dict(browser.cookies)
        ours = {"sec-fetch-site": "same-origin", "x-holdfast": "1"}
        assert (await browser.delete("/session", headers=ours)).json() == {"what": "signed out"}
        again = scene.client(token=None)
        again.cookies.update(kept)
        assert kind(await again.get("/api/v1/runs")) == "sign_in"

    played(tmp_path, play, options={"executes": False})


def test_a_session_of_one_server_is_none_of_another(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        browser = scene.client(token=None)
        await browser.post("/session", json={"token": TOKEN})
        async with Scene(tmp_path, executes=False, name="other.db") as other:
            stranger = other.client(token=None)
            stranger.cookies.update(browser.cookies)
            assert kind(await stranger.get("/api/v1/runs")) == "sign_in"

    played(tmp_path, play, options={"executes": False})


def test_roles_are_kept_on_every_operation(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for name, role in PEOPLE.items():
            client = scene.client(token=scene.tokens[name])
            for operation in operations(scene.api):
                answer = await ask(client, operation)
                is_allowed = operation.role is None or role.may(Role(operation.role))
                is_refused = answer.status_code == 403 and kind(answer) == "role"
                assert is_refused is not is_allowed, (name, operation, answer.text)

    played(tmp_path, play, options={"executes": False, "people": PEOPLE})


def test_a_read_only_server_changes_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for operation in operations(scene.api):
            answer = await ask(scene.http, operation)
            is_refused = answer.status_code == 403 and kind(answer) == "read_only"
            assert is_refused is (operation.role in ("operator", "admin")), operation

    played(tmp_path, play, options={"executes": False, "is_read_only": True})


def test_a_parameter_or_field_that_is_not_known_is_refused(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        for operation in operations(scene.api):
            glue = "&" if "?" in operation.url else "?"
            given = {} if operation.body is None else {"json": operation.body}
            extended = await scene.http.request(operation.method, f"{operation.url}{glue}surprise=1", **given)
            assert kind(extended) == "unknown_parameter", operation
            if operation.body is not None and operation.name not in SIGNED | FILES:
                surprised = {**operation.body, "surprise": 1}
                answer = await scene.http.request(operation.method, operation.url, json=surprised)
                assert kind(answer) == "unknown_parameter", operation
                forged = await scene.http.request(operation.method, operation.url, json={**operation.body, "by": "eva"})
                assert kind(forged) == "unknown_parameter", "who acts comes from the credential"

    played(tmp_path, play, options={"executes": False})


def test_other_methods_are_refused_and_tell_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        known: dict[str, set[str]] = {}
        for operation in operations(scene.api):
            known.setdefault(operation.path, set()).add(operation.method)
        for path, methods in known.items():
            for method in ("GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "BREW"):
                if method in methods:
                    continue
                answer = await scene.http.request(method, path, headers={"content-type": "application/json"})
                assert answer.status_code in (404, 405), (method, path, answer.text)
                if answer.status_code == 405 and method != "HEAD":
                    assert set(answer.json()) == {"type", "title", "status", "instance"}

    played(tmp_path, play, options={"executes": False})


def test_looking_changes_nothing_whatever_is_looked_at(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("refund", "x", "waiting", customer="ada")
        question = (await scene.get("/questions"))["items"][0]
        before = (await scene.http.get("/api/v1/runs/x")).headers["etag"]
        for operation in operations(scene.api):
            for method in ("GET", "HEAD", "OPTIONS"):
                for path in (operation.url, operation.url.replace("/questions/x", f"/questions/{question['id']}")):
                    await scene.http.request(method, path)
        assert (await scene.http.get("/api/v1/runs/x")).headers["etag"] == before
        assert (await scene.get(f"/questions/{question['id']}")) == question

    played(tmp_path, play)


def test_pages_and_files_of_the_console_pass_the_same_gate(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        nobody = scene.client(token=None)
        page = (await nobody.get("/")).text
        files = sorted(set(re.findall(r'"(/static/[^"]+)"', page)))
        assert files
        paths = ["/", *(f"/{each}" for each in sorted(PAGES)), "/runs/a%2Fb", *files]
        for path in [*paths, "/static/0123456789abcdef/main.js", f"{files[0]}/../../server/launch.py", "/nothing"]:
            for host in WRONG_HOSTS:
                assert kind(await nobody.get(path, headers={"host": host})) == "wrong_host", (path, host)
            found = await nobody.get(path, headers={"origin": "https://evil.test", "sec-fetch-site": "cross-site"})
            assert found.status_code == (200 if path in paths else 404 if "static" in path else 401), path
            for answer in (found, await nobody.get(path, headers={"host": "evil.test"})):
                assert not [name for name in answer.headers if name.startswith("access-control")], path
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy, path
                assert "frame-ancestors 'none'" in policy, path
                assert {"unsafe-inline", "unsafe-eval"} & set(re.findall(r"[\w-]+", policy)) == set(), path
                for name in set(HEADERS) - {"content-security-policy", "cache-control"}:
                    assert answer.headers.get_list(name) == [HEADERS[name]], (path, name)
            immutable = "immutable" in found.headers["cache-control"]
            assert immutable == (path in files), path
            for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE"):
                refused = await nobody.request(method, path, headers={"content-type": "application/json"})
                assert kind(refused) in ("sign_in", "method", "no_such_page"), (method, path)
            assert TOKEN not in found.text

    played(tmp_path, play, options={"executes": False})


# failures


def test_after_ten_failures_a_peer_waits_and_who_has_the_token_does_not(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        guesser = scene.client(token="otto.guess", peer="10.0.0.9")
        kinds = [kind(await guesser.get("/api/v1/runs")) for _ in range(12)]
        assert kinds == ["sign_in"] * 10 + ["rate"] * 2
        blocked = await guesser.post("/session", json={"token": "more"})
        assert kind(blocked) == "rate"
        assert 0 < int(blocked.headers["retry-after"]) <= 60
        right = scene.client(token=scene.tokens["otto"], peer="10.0.0.9")
        assert kind(await right.get("/api/v1/runs")) == "rate"
        assert (await scene.client(token=scene.tokens["otto"], peer="10.0.0.8").get("/api/v1/runs")).status_code == 200
        assert (await right.get("/api/v1/runs")).status_code == 200, "it is known by now"
        assert (await scene.client(peer="10.0.0.9").get("/api/v1/runs")).status_code == 200, "the store's own"

    played(tmp_path, play, options={"executes": False, "people": PEOPLE})


def test_tokens_of_people_are_compared_with_hashes_and_die_with_their_entry(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        file = tmp_path / "users.toml"
        assert all(token.partition(".")[2] not in file.read_text() for token in scene.tokens.values())
        client = scene.client(token=scene.tokens["otto"])
        assert (await client.get("/session")).json() == {"name": "otto", "role": "operator"}
        swapped = "anna." + scene.tokens["otto"].partition(".")[2]
        assert kind(await scene.client(token=swapped).get("/session")) == "sign_in"
        file.write_text(file.read_text().replace('role = "operator"', 'role = "viewer"'))
        assert (await client.get("/session")).json() == {"name": "otto", "role": "viewer"}
        file.write_text(file.read_text().replace('name = "otto"', 'name = "hugo"'))
        assert kind(await client.get("/session")) == "sign_in"
        file.write_text("[[users")
        assert kind(await scene.client(token=scene.tokens["vera"]).get("/session")) == "sign_in"

    played(tmp_path, play, options={"executes": False, "people": PEOPLE})


def test_a_proxy_is_believed_only_where_it_is(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        def asked(peer: str, **headers: str) -> httpx.AsyncClient:
            return scene.client(token=None, peer=peer, **headers)

        assert (await asked("10.2.3.4", **{"x-forwarded-user": "anna"}).get("/session")).json()["role"] == "admin"
        assert (await asked("10.2.3.4", **{"x-forwarded-user": "new"}).get("/session")).json()["role"] == "viewer"
        assert kind(await asked("11.2.3.4", **{"x-forwarded-user": "anna"}).get("/session")) == "sign_in"
        assert kind(await asked("10.2.3.4").get("/session")) == "sign_in"
        act = await asked("10.2.3.4", **{"x-forwarded-user": "anna"}).post("/api/v1/runs", json={"agent": "echo"})
        assert kind(act) == "origin", "what a browser says by itself needs our header"

    proxies = Proxies.of(["10.0.0.0/8"], header="X-Forwarded-User")
    played(tmp_path, play, options={"executes": False, "people": PEOPLE, "proxies": proxies})


# bodies


def test_a_body_is_small_and_json(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async def sent(content: Any) -> httpx.Response:
            return await scene.http.post("/api/v1/runs", content=content, headers={"content-type": "application/json"})

        async def drops() -> Any:
            for _ in range(1100):
                yield b" " * 1000

        assert kind(await sent(b" " * 1_000_001)) == "too_large"
        assert kind(await sent(drops())) == "too_large"
        for wrong in (
            b"{",
            b"[1",
            b'{"agent": NaN}',
            b"\xff",
            b'{"agent": "\\ud800"}',
            b"[" * 5000 + b"]" * 5000,
            b"1" * 9000,
        ):
            assert kind(await sent(wrong)) == "invalid_json", wrong[:20]
        for wrong in (b"[]", b"1", b'"x"', b'{"agent": 1}', b'{"agent": "a", "priority": "1"}', b"null", b""):
            assert kind(await sent(wrong)) == "invalid_parameter", wrong
        paused = "/api/v1/runs/x/pause"
        assert "application/json" in (await scene.http.post(paused)).json()["detail"]
        empty = await scene.http.post(paused, headers={"content-type": "application/json"})
        assert empty.json()["errors"] == [{"path": "", "message": "A body in JSON is required, {} at least"}]
        assert (await sent(b'{"agent": "echo", "input": {"text": "\\u0000 \\ud83d\\ude00"}}')).status_code == 201

    played(tmp_path, play, options={"executes": False})


NASTY = [
    "' OR '1'='1",
    '"; DROP TABLE runs; --',
    "x') UNION SELECT 1,2,3 --",
    "%",
    "_",
    "*",
    "?",
    "\\",
    "$.a",
    "../../etc/passwd",
    "\x01\x1b[2J",
    "\u202ex",
    "a" * 200,
    "ｒ_",
    "-1",
    "1e309",
    "[]",
    "{}",
]


def test_no_filter_lets_more_through_than_it_names(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("echo", "one", "done")
        for nasty in NASTY:
            for name in ("agent", "thread", "queue", "parent", "prefix", "tag", "status", "since", "limit", "cursor"):
                answer = await scene.http.get("/api/v1/runs", params={name: nasty})
                assert answer.status_code in (200, 400), (name, nasty, answer.text)
                if answer.status_code == 200:
                    assert answer.json()["items"] == [], (name, nasty)
            for path in ("/runs/{}", "/runs/{}/calls", "/runs/one/calls/{}", "/questions/{}", "/triggers/{}/log"):
                answer = await scene.http.get("/api/v1" + path.format(quote(nasty, safe="")))
                assert answer.status_code in (400, 404), (path, nasty, answer.text)
            assert kind(await scene.http.get("/api/v1/runs", params={f"agent{nasty}": "echo"})) == "unknown_parameter"

    played(tmp_path, play)


def test_an_error_of_ours_tells_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        async def broken(*args: object, **options: object) -> None:
            raise RuntimeError("s3cret-of-mine in /etc")

        scene.api.state.service.reads.workers = broken
        answer = await scene.http.get("/api/v1/workers")
        assert kind(answer) == "internal"
        assert "s3cret" not in answer.text
        assert "s3cret" in caplog.text

    played(tmp_path, play, options={"executes": False})


def test_it_is_mounted_under_any_prefix(tmp_path: Path) -> None:
    from fastapi import FastAPI

    async def go() -> None:
        async with Scene(tmp_path, executes=False) as scene:
            outer = FastAPI()
            outer.mount("/deep/holdfast", scene.api)
            transport = httpx.ASGITransport(app=outer)
            async with httpx.AsyncClient(
                transport=transport, base_url=BASE, headers={"authorization": f"Bearer {TOKEN}"}
            ) as client:
                made = await client.post("/deep/holdfast/api/v1/runs", json={"agent": "echo", "id": "a/b"})
                assert made.status_code == 201, made.text
                assert (await client.get("/deep/holdfast/api/v1/runs/a%2Fb")).json()["id"] == "a/b"
                lost = await client.get("/deep/holdfast/api/v1/runs/no%2Fne")
                assert lost.json()["instance"] == "/deep/holdfast/api/v1/runs/no%2Fne"
                assert (await client.get("/deep/holdfast/api/v1/health")).status_code == 200
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
                assert (await client.get("/deep/holdfast/api/v1/runs")).status_code == 401

    asyncio.run(go())
