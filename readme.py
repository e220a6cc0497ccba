"""Makes the links of README.md absolute for a package index, which has the text and not the files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def absolute(text: str, base: str) -> str:
    """The text, with `](docs/x.md)` as `](BASE/docs/x.md)`; what is absolute, or in the page itself, stays."""
    return re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", rf"]({base}/\1)", text)


class ReadmeHook(MetadataHookInterface):
    """Called when a wheel or an sdist is built, and for an editable install."""

    def update(self, metadata: dict[str, Any]) -> None:
        base = f"{metadata['urls']['Source']}/blob/v{metadata['version']}"
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, base)}
