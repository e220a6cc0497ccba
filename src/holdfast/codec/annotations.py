"""Which coder an annotation gets."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_origin

from holdfast.base.secrets import Secret
from holdfast.codec.coders import MISSING, Coder, HopelessCoder, ShapeCoder
from holdfast.codec.foreign import is_attrs
from holdfast.codec.refusal import describe
from holdfast.codec.shapes import shape_of


def coder_for(annotation: object) -> Coder[Any]:
    """The coder of an annotation; `MISSING`, `Any` and `object` give the one for exact builtins.

        coder_for(list[str]).dumps(["a"])   # '["a"]'

    Never raises: an annotation that cannot be stored gives a coder with a `problem`.
    """
    try:
        return _coder_by_value(annotation)
    except TypeError:  # not hashable, as in Annotated[int, {}]
        return _coder_by_identity(_Identity(annotation))


def coder_of(value: object) -> Coder[Any]:
    """The coder of a value that comes without an annotation: builtins as they are, others by their class."""
    return coder_for(MISSING if type(value).__module__ == "builtins" else type(value))


class _Identity:
    __slots__ = ("annotation",)

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation

    def __hash__(self) -> int:
        return id(self.annotation)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.annotation is self.annotation


@lru_cache(4096)
def _coder_by_value(annotation: object) -> Coder[Any]:
    return _new_coder(annotation)


@lru_cache(4096)
def _coder_by_identity(identity: _Identity) -> Coder[Any]:
    return _new_coder(identity.annotation)


def _new_coder(annotation: object) -> Coder[Any]:
    if annotation is MISSING or annotation is Any or annotation is object:
        return Coder(annotation)
    if annotation is Secret or get_origin(annotation) is Secret:
        return HopelessCoder(annotation, "Secrets are not stored; fetch it where it is used.")
    shape = shape_of(annotation)
    if shape is not None:
        return ShapeCoder(annotation, shape)
    if isinstance(annotation, type) and is_attrs(annotation):
        name = annotation.__qualname__
        return HopelessCoder(annotation, f"{name} is an attrs class; use a dataclass or a pydantic model.")
    # Not at the top: pydantic takes as long to load as all the rest of us, and many programs never come here.
    from holdfast.codec.models import ModelCoder

    try:
        return ModelCoder(annotation)
    except Exception as error:  # pydantic runs hooks of foreign classes here
        reason = str(error).partition("\n")[0]
        hint = "use a dataclass, a pydantic model, a TypedDict or builtins"
        return HopelessCoder(annotation, f"{describe(annotation)} cannot be stored; {hint} ({reason})")
