"""What filters let through, and what queue keys become."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast.automation.triggers.filters import checked_template, checked_where, filled, matches
from holdfast.automation.triggers.sources import FileEvent
from holdfast.errors import UsageError

ORDER = {
    "id": 7,
    "total": 250.5,
    "paid": True,
    "note": None,
    "customer": {"id": "c-9", "tier": "gold"},
    "lines": [{"sku": "A1"}, {"sku": "B2"}],
}


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        (None, True),
        ({}, True),
        ({"id": 7}, True),
        ({"id": 7.0}, True),
        ({"id": "7"}, False),
        ({"id": True}, False),
        ({"paid": True}, True),
        ({"paid": 1}, False),
        ({"note": None}, True),
        ({"missing": None}, False),
        ({"customer.tier": "gold"}, True),
        ({"customer.tier": "gold", "id": 8}, False),
        ({"customer.tier.x": "gold"}, False),
        ({"lines.1.sku": "B2"}, True),
        ({"lines.2.sku": "B2"}, False),
        ({"lines.x": 1}, False),
        ({"lines": [{"sku": "A1"}, {"sku": "B2"}]}, True),
        ({"customer.tier": {"in": ["gold", "silver"]}}, True),
        ({"customer.tier": {"in": ["silver"]}}, False),
        ({"paid": {"in": [1]}}, False),
        ({"total": {"gt": 250, "lt": 251}}, True),
        ({"total": {"gt": 250.5}}, False),
        ({"total": {"gte": 250.5, "lte": 250.5}}, True),
        ({"total": {"gt": "a"}}, False),
        ({"paid": {"gt": 0}}, False),
        ({"missing": {"lt": 10}}, False),
        ({"customer.id": {"gt": "c-8"}}, True),
        ({"id": {"ne": 8}}, True),
        ({"id": {"ne": 7}}, False),
        ({"missing": {"ne": 7}}, False),
        ({"note": {"exists": True}}, True),
        ({"missing": {"exists": True}}, False),
        ({"missing": {"exists": False}}, True),
        ({"note": {"exists": False}}, False),
        ({"customer.id": {"prefix": "c-"}}, True),
        ({"customer.id": {"prefix": "d-"}}, False),
        ({"id": {"prefix": "7"}}, False),
    ],
)
def test_a_filter_lets_through_what_fits(where: dict[str, Any] | None, fits: bool) -> None:
    assert matches(checked_where(where), ORDER) is fits


def test_the_value_itself_has_a_path() -> None:
    assert matches({".": {"gt": 5}}, 6)
    assert not matches({".": {"gt": 5}}, 5)
    assert not matches({"id": 1}, 6)


def test_fields_of_dataclasses_and_what_the_codec_adds_can_be_compared() -> None:
    assert matches({"path": {"prefix": "/a"}, "size": {"lt": 10}}, FileEvent("/a/b", "created", "d", 3))
    assert not matches({"nothing": {"exists": True}}, FileEvent("/a/b", "created", "d", 3))
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert matches({"at": {"gt": datetime(2026, 1, 1, tzinfo=UTC)}}, {"at": noon})
    assert not matches({"at": {"gt": 5}}, {"at": noon})
    assert not matches({"at": {"gt": 5}}, {"at": Decimal("sNaN")})
    assert not matches({"at": 5}, {"at": Decimal("sNaN")})  # which raises when it is compared
    assert matches({"at": {"ne": 5}}, {"at": Decimal("sNaN")})


@pytest.mark.parametrize(
    "where",
    [
        [("id", 7)],
        {"": 1},
        {7: 1},
        {"a..b": 1},
        {".a": 1},
        {"customer": {}},
        {"customer": {"tier": "gold"}},
        {"id": {"between": [1, 2]}},
        {"id": {"gt": 1, "tier": 2}},
        {"id": {"in": []}},
        {"id": {"in": "gold"}},
        {"id": {"gt": None}},
        {"id": {"gt": True}},
        {"id": {"lt": [1]}},
        {"id": {"exists": "yes"}},
        {"id": {"exists": False, "gt": 1}},
        {"id": {"prefix": 7}},
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(where: Any) -> None:
    with pytest.raises(UsageError):
        checked_where(where)


def test_a_refusal_says_how_to_look_inside_an_object() -> None:
    with pytest.raises(UsageError, match=r"'customer\.tier'"):
        checked_where({"customer": {"tier": "gold"}})


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("", ""),
        ("all", "all"),
        ("{customer.id}", "c-9"),
        ("c/{customer.id}/{id}", "c/c-9/7"),
        ("{missing}", ""),
        ("{note}", ""),
        ("{paid}", "true"),
        ("{lines.0.sku}", "A1"),
        ("{lines.0}", '{"sku":"A1"}'),
        ("{{{id}}}", "{7}"),
    ],
)
def test_a_queue_key_is_taken_from_the_value(template: str, key: str) -> None:
    assert filled(checked_template(template), ORDER) == key


@pytest.mark.parametrize("template", ["{", "}", "{}", "{id!r}", "{id:>5}", "{a..b}", 7])
def test_a_template_that_makes_no_sense_is_refused(template: Any) -> None:
    with pytest.raises(UsageError):
        checked_template(template)
