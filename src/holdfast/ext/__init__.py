"""The seam for frameworks: places, operations, codecs. No framework is imported here; see docs/extending.md."""

from __future__ import annotations

from holdfast.ext.agents import made_agent
from holdfast.ext.codecs import Codec, returned
from holdfast.ext.operations import Operation
from holdfast.ext.places import active, documents, from_thread, local, occurrence, place, segment, turn
from holdfast.ext.streaming import streamed

__all__ = [
    "Codec",
    "Operation",
    "active",
    "documents",
    "from_thread",
    "local",
    "made_agent",
    "occurrence",
    "place",
    "returned",
    "segment",
    "streamed",
    "turn",
]
