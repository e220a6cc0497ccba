"""The files of the console, and the paths under which a browser gets them.

They are the same for everybody and have nothing of a store in them, so they are given without a credential: the page
signs in by itself. Scripts and styles stand below a digest of them all, so that a browser keeps them for good and
never mixes those of two versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.base.data import data
from holdfast.server.problems import Problem
from holdfast.server.security.headers import POLICY

_FOLDER: Final = Path(__file__).parent.parent / "static"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_STATIC: Final = "/static/"
#: The first part of a path that is a page; what follows is the page's own affair.
PAGES: Final = frozenset(
    "overview runs questions in-doubt schedules triggers queues workers threads integrity compare".split()
)
#: The one way in which a script may name a script: the worker that all tabs share.
_POLICY: Final = f"{POLICY}; trusted-types holdfast"


@data
class Files:
    """What was read once: no request opens a file."""

    page: str
    digest: str
    contents: Mapping[str, tuple[str, bytes]]  #: by name: its type, its bytes

    @classmethod
    def read(cls) -> Files:
        """All files, from where the package is."""
        contents: dict[str, tuple[str, bytes]] = {}
        whole = hashlib.sha256()
        for path in sorted(_FOLDER.rglob("*")):
            if path.suffix in _TYPES:
                name, text = path.relative_to(_FOLDER).as_posix(), path.read_bytes()
                contents[name] = (_TYPES[path.suffix], text)
                whole.update(f"{name} {len(text)}\n".encode() + text)
        return cls((_FOLDER / "index.html").read_text("utf-8"), whole.hexdigest()[:16], contents)


class Console:
    """Answers requests for pages and files. It asks nothing of the store."""

    def __init__(self, files: Files, *, is_read_only: bool) -> None:
        self._files = files
        self._page_text = files.page.replace("{mode}", "read-only" if is_read_only else "all")

    def has(self, method: str, path: str) -> bool:
        """Is it a request for the console?"""
        if method not in ("GET", "HEAD"):
            return False
        return path in ("", "/") or path.startswith(_STATIC) or path.split("/")[1] in PAGES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = str(scope.get("root_path", ""))
        path = str(scope["path"]).removeprefix(root)
        answer = self._file(path) if path.startswith(_STATIC) else self._page(root)
        if scope["method"] == "HEAD":
            answer.body = b""
        await answer(scope, receive, send)

    def _page(self, root: str) -> Response:
        text = self._page_text.replace("{static}", escape(f"{root}{_STATIC}{self._files.digest}", quote=True))
        headers = {"content-security-policy": _POLICY, "cache-control": "no-cache"}
        return Response(text, media_type="text/html", headers=headers)

    def _file(self, path: str) -> Response:
        digest, _, name = path.removeprefix(_STATIC).partition("/")
        found = self._files.contents.get(name)
        # A page that was open before an update asks for files of then, and must not be given others.
        if found is None or digest != self._files.digest:
            raise Problem("no_such_page")
        kind, content = found
        headers = {"cache-control": "public, max-age=31536000, immutable", "content-security-policy": _POLICY}
        return Response(content, media_type=kind, headers=headers)
