"""How what models and tools of Google's ADK answer is stored: media as such, and what a tool did to its context."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from google.adk.events.event_actions import EventActions
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from holdfast import ext

_ANSWER: Final[TypeAdapter[list[LlmResponse]]] = TypeAdapter(list[LlmResponse])
_MEDIA: Final = {f"${kind.__name__}": kind for kind in (types.Part, types.FunctionResponse)}


def _read(stored: Any) -> list[LlmResponse]:
    return _ANSWER.validate_python(stored)


def _written(answer: list[LlmResponse]) -> Any:
    return _ANSWER.dump_python(answer, mode="json", by_alias=True, exclude_none=True)


@dataclasses.dataclass
class Told:
    """What a tool returned, and what it did to its context: state, artifacts, escalation."""

    result: Any
    actions: EventActions = dataclasses.field(default_factory=EventActions)

    def apply(self, context: ToolContext) -> Any:
        """The result, in a context as it was then."""
        for name in self.actions.model_fields_set - {"state_delta"}:
            setattr(context.actions, name, getattr(self.actions, name))
        context.state.update(self.actions.state_delta)
        return self.result


def _dump(told: Told) -> Any:
    actions = told.actions.model_dump(mode="json", exclude_defaults=True)
    return {"result": _plain(told.result), **({"actions": actions} if actions else {})}


def _load(stored: Any) -> Told:
    return Told(_rich(stored["result"]), EventActions.model_validate(stored.get("actions", {})))


def _plain(value: Any) -> Any:
    if (mark := f"${type(value).__name__}") in _MEDIA and isinstance(value, _MEDIA[mark]):
        return {mark: value.model_dump(mode="json", by_alias=True, exclude_none=True)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else to_jsonable_python(value)


def _rich(stored: Any) -> Any:
    if isinstance(stored, dict):
        mark = next(iter(stored), "")
        if len(stored) == 1 and mark in _MEDIA:
            return _MEDIA[mark].model_validate(stored[mark])
        return {key: _rich(part) for key, part in stored.items()}
    return [_rich(part) for part in stored] if isinstance(stored, list) else stored


ANSWER: Final[ext.Codec[list[LlmResponse]]] = ext.Codec(_written, _read, outside=_read)
RESULT: Final[ext.Codec[Told]] = ext.Codec(_dump, _load, outside=Told)
