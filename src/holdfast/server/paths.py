"""Ids in paths. They may have a slash in them, which a client writes as %2F and which must not part the path."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

from holdfast.server.problems import Problem

#: Stands for a slash that is part of an id until the id is read; no id has it.
_SLASH: Final = "\x1f"


class _IdConvertor(Convertor[str]):
    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return value.replace(_SLASH, "/")

    def to_string(self, value: str) -> str:
        return value.replace("/", "%2F")


register_url_convertor("id", _IdConvertor())


def shown_path(scope: Scope) -> str:
    """The path as a client may have written it."""
    return str(scope["path"]).replace(_SLASH, "%2F")


def check_path(scope: Scope) -> None:
    """Refuse characters that no name has, and keep slashes of ids apart from those of the path."""
    path: str = scope["path"]
    if "\x00" in path or _SLASH in path or b"%00" in scope.get("query_string", b""):
        raise Problem("invalid_parameter", "There are no control characters in names.")
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        parts = raw.partition(b"?")[0].decode("ascii", "replace").split("/")
        scope["path"] = "/".join(unquote(part).replace("/", _SLASH) for part in parts)
