"""JSON schemas by pydantic. Loaded when the first one is asked for: pydantic takes long."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

import typing_extensions
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from holdfast.codec.coders import MISSING
from holdfast.codec.formats import OTHER_NAMES


def json_schema(annotation: object) -> JsonSchemaValue:
    """What a value must look like to be read as the annotation; raises all sorts of errors if nothing says so."""
    if annotation is MISSING:
        return {}
    adapter = TypeAdapter[Any](_readable(annotation))
    return adapter.json_schema(mode="validation", schema_generator=_Generator)


class _Generator(GenerateJsonSchema):
    """Schemas that say no to nothing which the codec reads as the type."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """A union without one of its members would refuse what fits that one."""
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)

    def model_fields_schema(self, schema: core_schema.ModelFieldsSchema) -> JsonSchemaValue:
        return _with_other_names(super().model_fields_schema(schema), schema["fields"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _with_other_names(super().typed_dict_schema(schema), schema["fields"])

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> JsonSchemaValue:
        fields = {field["name"]: field for field in schema["fields"]}
        return _with_other_names(super().dataclass_args_schema(schema), fields)

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """The text of a decimal is as bound as the number is."""
        found = super().decimal_schema(schema)
        options = {option.get("type"): option for option in found.get("anyOf", ())}
        if options.keys() == {"number", "string"}:
            form = "decimal-or-infinite" if schema.get("allow_inf_nan") else "decimal"
            text = {**options["number"], **options["string"], "format": form}
            found = {**found, "anyOf": [options["number"], text]}
        return found


def _with_other_names(found: JsonSchemaValue, fields: Mapping[str, Any]) -> JsonSchemaValue:
    """Add the names that a field may come under: coders write attribute names and read those and every alias."""
    properties: dict[str, Any] = found.get("properties", {})
    for name, field in fields.items():
        alias = field.get("validation_alias", name)
        paths = [[alias]] if isinstance(alias, str) else alias if isinstance(alias[0], list) else [alias]
        names = dict.fromkeys([name, *(str(path[0]) for path in paths if len(path) == 1)])
        shown = next((each for each in names if each in properties), None)
        if shown is None:
            continue
        if len(names) > 1:
            properties[shown] = {**properties[shown], OTHER_NAMES: [each for each in names if each != shown]}
        if any(len(path) > 1 for path in paths):  # it may be deep inside something else, which is not described
            found["required"] = [each for each in found.get("required", ()) if each != shown]
            for path in paths:
                properties.setdefault(str(path[0]), {})
    return found


if sys.version_info >= (3, 12):

    def _readable(annotation: Any) -> Any:
        return annotation

else:

    def _readable(annotation: Any, depth: int = 0) -> Any:
        """The annotation with each `typing.TypedDict` as one of `typing_extensions`, the only ones pydantic reads."""
        if depth > 30:
            raise RecursionError
        if typing.is_typeddict(annotation):
            return _rebuilt(annotation, depth)
        args = typing.get_args(annotation)
        origin = typing.get_origin(annotation)
        if not args or origin in (typing.Literal, typing_extensions.Literal):
            return annotation
        if origin is typing.Annotated:
            return typing.Annotated[(_readable(args[0], depth + 1), *args[1:])]
        readable = tuple(_readable(arg, depth + 1) for arg in args)
        if all(new is old for new, old in zip(readable, args, strict=True)):
            return annotation
        if origin in (typing.Union, types.UnionType):
            return typing.Union[readable]  # noqa: UP007
        return origin[readable]

    def _rebuilt(annotation: Any, depth: int) -> Any:
        hints = typing_extensions.get_type_hints(annotation, include_extras=True)
        fields: dict[str, Any] = {}
        for name, hint in hints.items():
            mark: Any = typing.get_origin(hint)
            if mark in (typing.Required, typing.NotRequired):
                (hint,) = typing.get_args(hint)
            is_required = mark is typing.Required or (
                name in annotation.__required_keys__ and mark is not typing.NotRequired
            )
            inner = _readable(hint, depth + 1)
            fields[name] = typing_extensions.Required[inner] if is_required else typing_extensions.NotRequired[inner]
        return typing_extensions.TypedDict(annotation.__name__, fields)  # type: ignore[operator]
