"""The files of the console: who gets them, under which headers, and how large they are."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2 as httpx
from fastapi import FastAPI

from holdfast.server.console.files import PAGES, Files
from holdfast.server.security.headers import POLICY
from tests.server.scene import Scene, played

_STATIC = Path(__file__).parents[2] / "src/holdfast/server/static"
_LINK = re.compile(r'(?:src|href)="([^"]+)"')


def test_pages_are_for_anybody_and_tell_nothing_of_the_store(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.start("echo", "a-secret-name", "done")
        anybody = scene.client(token=None)
        for path in ["/", *(f"/{page}" for page in PAGES), "/runs/a-secret-name", "/runs/a%2Fb?call=x%231"]:
            answer = await anybody.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers["content-security-policy"] == f"{POLICY}; trusted-types holdfast"
            assert "secret" not in answer.text
        assert (await anybody.head("/runs")).text == ""
        assert (await anybody.post("/runs")).status_code in (401, 403, 404, 415), "only looking is for anybody"
        assert (await anybody.get("/nowhere")).status_code == 401
        assert (await anybody.get("/api/v1/runs")).status_code == 401
        await anybody.aclose()

    played(tmp_path, play)


def test_files_are_kept_for_good_under_their_digest_and_found_under_no_other(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        anybody = scene.client(token=None)
        page = (await anybody.get("/")).text
        links = _LINK.findall(page)
        assert len(links) == 5, page
        for link in links:
            answer = await anybody.get(link)
            assert answer.status_code == 200, link
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            former = link.replace(Files.read().digest, "0" * 16)
            assert (await anybody.get(former)).status_code == 404, "another version's"
        for path in ("index.html", "../gate.py", "..%2f..%2fgate.py", "nothing.js", ""):
            assert (await anybody.get(f"/static/{Files.read().digest}/{path}")).status_code in (401, 404), path
        refused = await anybody.get("/", headers={"host": "evil.example.org"})
        assert refused.status_code == 421
        await anybody.aclose()

    played(tmp_path, play)


def test_mounted_under_a_prefix_its_links_have_it(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        outer = FastAPI()
        outer.mount("/deep/holdfast", scene.api)
        transport = httpx.ASGITransport(app=outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:7788") as client:
            page = (await client.get("/deep/holdfast/runs/x")).text
            for link in _LINK.findall(page):
                assert link.startswith("/deep/holdfast/static/")
                assert (await client.get(link)).status_code == 200

    played(tmp_path, play)


def test_a_server_that_changes_nothing_says_so_in_its_page(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        assert 'content="read-only"' in (await scene.http.get("/")).text

    played(tmp_path, play, options={"is_read_only": True})


def test_scripts_and_styles_are_small_and_our_own() -> None:
    files = [path for path in _STATIC.rglob("*") if path.suffix in (".js", ".css")]
    assert sum(path.stat().st_size for path in files) <= 300_000
    for path in [*files, _STATIC / "index.html"]:
        text = path.read_text()
        assert not re.search(r"\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|document\.write|\beval\(", text), path
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[a-z]", text), path
        assert not re.search(r'\sstyle="|\son[a-z]+="', text), path
    named = {link for path in files for link in re.findall(r'from "(\.[^"]+)"', path.read_text())}
    assert all(link.endswith(".js") for link in named)
    page = (_STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
