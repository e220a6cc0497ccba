"""`holdfast version`"""

from __future__ import annotations

import platform

from holdfast.cli.setup import Setup, command
from holdfast.cli.text import to_json
from holdfast.version import VERSION


@command("version")
def version_command(setup: Setup) -> int:
    """Print the version."""
    if setup.is_json:
        print(to_json({"holdfast": VERSION, "python": platform.python_version()}))
    else:
        print(f"holdfast {VERSION}")
    return 0
