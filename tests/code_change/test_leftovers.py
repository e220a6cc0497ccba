"""Whether a recorded effect is left over that a new one might be: answered from an index, as if all were looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.journal.leftovers import Leftovers, is_unasked, may_be

BRANCHES = ["", "a~1", "a~1/b~1", "a~1/b~1/c~1", "a~2", "ab~1", "a~11"]


@dataclass(eq=False)
class Recorded:
    branch: str
    name: str
    digest: str
    is_effect: bool
    claimed: bool = False
    given: dict[str, Any] | None = None


recorded = st.builds(
    Recorded,
    st.sampled_from(BRANCHES),
    st.sampled_from("xy"),
    st.sampled_from("12"),
    st.sampled_from([True, True, False]),
)
asked = st.tuples(st.sampled_from([*BRANCHES, "z~1"]), st.sampled_from("xyz"), st.sampled_from("123"))
#: What happens between two questions: the n-th entry is claimed or settled, or a branch is there again.
events = st.tuples(st.sampled_from(["claim", "settle", "reappear"]), st.integers(0, 20))


@settings(deadline=None)
@given(st.lists(recorded, max_size=8), st.lists(st.tuples(events, asked), max_size=12))
def test_the_index_answers_as_a_look_at_all_of_them_would(
    entries: list[Recorded], questions: list[tuple[tuple[str, int], tuple[str, str, str]]]
) -> None:
    reappeared = {""}
    leftovers = Leftovers(entries, reappeared)
    for (event, number), (branch, name, digest) in questions:
        if event == "reappear":
            reappeared.add(BRANCHES[number % len(BRANCHES)])
        elif entries and event == "claim":
            entries[number % len(entries)].claimed = True
        elif entries:
            entries[number % len(entries)].given = {"verdict": "landed"}
        expected = any(is_unasked(e) and may_be(e, branch, name, digest, reappeared=reappeared) for e in entries)
        assert leftovers.has_any(branch, name, digest) == expected


class Looked(Recorded):
    """Counts how often somebody looks whether it was asked for."""

    looks = 0

    @property
    def claimed(self) -> bool:
        Looked.looks += 1
        return False

    @claimed.setter
    def claimed(self, value: bool) -> None:
        pass


def test_a_thousand_new_effects_are_not_compared_with_a_thousand_recorded_ones() -> None:
    count = 1000
    entries = [Looked(f"a~{n}", "x", str(n), is_effect=True) for n in range(count)]
    leftovers = Leftovers(entries, {"", *(f"a~{n}" for n in range(count))})
    Looked.looks = 0
    assert not any(leftovers.has_any(f"b~{n}", "x", "new") for n in range(count))
    assert all(leftovers.has_any(f"a~{n}", "x", "new") for n in range(count))
    assert Looked.looks < 10 * count
