"""The HTTP API of a store: what the console and other programs see of runs, and do to them.

`api/` has a file for each resource, `security/` one for each way to keep others out. All that is taken from the rest
of Holdfast goes through `reads` and `acts`.
"""

from holdfast.server.asgi import create_app
from holdfast.server.security.access import Access

__all__ = ["Access", "create_app"]
