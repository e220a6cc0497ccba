"""What was typed becomes what a question takes."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from holdfast.cli.failure import Failure
from holdfast.cli.forms import read_choice, read_form, read_yes
from holdfast.codec.forms import fields_of, type_text


class Colour(Enum):
    red = "red"
    blue = "blue"


class Address(BaseModel):
    city: str


class Order(BaseModel):
    title: str = Field(description="what it is called")
    pages: int
    price: float = 1.5
    is_urgent: bool = False
    colour: Colour = Colour.red
    size: Literal["s", "m"] | None = None
    tags: list[str] = []
    address: Address | None = None


SCHEMA = TypeAdapter(Order).json_schema()


@pytest.mark.parametrize("word", ["yes", "Y", " true ", "ok", "1", "approve"])
def test_yes_has_many_words(word: str) -> None:
    assert read_yes(word) is True


@pytest.mark.parametrize("word", ["no", "N", "false", "0", "reject"])
def test_so_has_no(word: str) -> None:
    assert read_yes(word) is False


def test_anything_else_is_neither() -> None:
    with pytest.raises(Failure, match="yes or no"):
        read_yes("maybe")


def test_an_option_is_named_by_its_label_or_number() -> None:
    options = ["Staging", "production", "2"]
    assert read_choice("Staging", options) == "Staging"
    assert read_choice("staging", options) == "Staging"
    assert read_choice("1", options) == "Staging"
    assert read_choice("2", options) == "2", "a label goes before a number"
    for wrong in ("0", "4", "stag", ""):
        with pytest.raises(Failure, match="1 Staging, 2 production"):
            read_choice(wrong, options)


def test_pairs_are_read_by_the_schema_and_accepted_by_the_type() -> None:
    words = ["title=A = B", "pages=3", "is_urgent=yes", "colour=2", "size=m", "tags=a, b", 'address={"city": "Wien"}']
    found = read_form(words, SCHEMA)
    order = Order.model_validate(found)
    assert order == Order(
        title="A = B",
        pages=3,
        is_urgent=True,
        colour=Colour.blue,
        size="m",
        tags=["a", "b"],
        address=Address(city="Wien"),
    )
    assert "price" not in found, "a default is left to the type"
    assert read_form(['{"title": "x", "pages": 1}'], SCHEMA) == {"title": "x", "pages": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["title=x"], "Missing: pages"),
        (["title=x", "pages=many"], "pages takes"),
        (["title=x", "pages=1.5"], "whole number"),
        (["title=x", "pages=true"], "whole number"),
        (["title=x", "pages=1", "colour=green"], "1 red, 2 blue"),
        (["title=x", "pages=1", "is_urgent=perhaps"], "yes or no"),
        (["nobody=1"], "title"),
        (["a sentence"], "no field=value"),
        (["{broken"], "JSON object"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(words: list[str], message: str) -> None:
    with pytest.raises(Failure, match=message):
        read_form(words, SCHEMA)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (int, "7", 7),
        (float, "7", 7),
        (str, "7", "7"),
        (str, "a b", "a b"),
        (bool, "no", False),
        (int | str, "7", 7),
        (int | str, "seven", "seven"),
        (int | None, "null", None),
        (list[int], "1,2", [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], "", []),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Any, "{", "{"),
        (Any, "[1]", [1]),
    ],
)
def test_a_value_that_is_no_form(type_: Any, text: str, value: object) -> None:
    assert read_form([text], TypeAdapter(type_).json_schema()) == value


def test_a_field_is_told_in_plain_words() -> None:
    fields = fields_of(SCHEMA)
    assert fields is not None
    told = {field.name: field.told for field in fields}
    assert told["title"] == "text, what it is called"
    assert told["pages"] == "whole number"
    assert told["price"] == "number, default 1.5"
    assert told["colour"] == 'one of red, blue, default "red"'
    assert told["size"].startswith("one of s, m or null")
    assert told["tags"].startswith("list of text")
    assert fields_of({"type": "integer"}) is None
    assert fields_of(None) is None


def test_a_schema_that_refers_to_itself_has_an_end() -> None:
    schema = {"$ref": "#/$defs/Loop", "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}}
    assert type_text(schema) == "JSON"
    assert read_form(["1"], schema) == 1
