"""Digests by which calls are recognised: of the text of what was given, with all objects in the order of their keys."""

from __future__ import annotations

from typing import Any, Final

from holdfast.codec.fastjson import Json, decode, digest, encode_sorted, make_decode
from holdfast.codec.order import in_order
from holdfast.codec.recent import Listed
from holdfast.codec.swift import decode_swiftly, encode_swiftly
from holdfast.codec.text import DEEP, LARGE, Tree, plain_tree

#: The large arguments of a call, by their names.
Trees = dict[str, Tree | Listed]


def large_mark(parts: list[str], trees: Trees) -> str | None:
    """The digest of a large call, without reading its text again, if it is known what all of it is of."""
    listed = {name: tree for name, tree in trees.items() if isinstance(tree, Listed)}
    if listed:
        return _listed_mark(parts, listed)
    if not any("{" in part for part in parts[1:]) or any("$" in part and '"$dict"' in part for part in parts):
        return None
    whole: dict[str, Json] = {}
    depth = 0
    for head, text in zip(parts[1::3], parts[2::3], strict=False):
        name = decode(head[:-1])
        tree = trees.get(name)
        if tree is None and len(text) <= LARGE:
            tree = plain_tree(decode(text))
        if not isinstance(tree, Tree) or tree.depth > DEEP:
            return None
        whole[name] = tree.value
        depth = max(depth, tree.depth)
    ordered = in_order(whole, depth + 1)
    if ordered is whole:
        return digest("".join(parts))
    found = encode_swiftly(ordered, has_escapes=any("\\u" in part for part in parts))
    # The same characters in another order.
    return digest(found) if found is not None and len(found) == sum(map(len, parts)) else None


def _listed_mark(parts: list[str], listed: dict[str, Listed]) -> str:
    """The same if some arguments are lists of which parts are known from the last call."""
    large = max(listed, key=lambda name: listed[name].size)
    before: list[tuple[str, str]] = []
    after: list[tuple[str, str]] = []
    own = ""
    for head, text in zip(parts[1::3], parts[2::3], strict=False):
        name = decode(head[:-1])
        if name == large:
            own = head
            continue
        ordered = listed[name].ordered if name in listed else canonical(text) if "{" in text else text
        member = head + (ordered if isinstance(ordered, str) else ordered.decode("ascii"))
        (before if name < large else after).append((name, member))
    first = "".join(f"{member}," for _, member in sorted(before))
    last = "".join(f",{member}" for _, member in sorted(after))
    return listed[large].digest(f"{{{first}{own}[", f"]{last}}}")


def canonical(text: str) -> str | bytes:
    """The text with all dicts in the order of their keys."""
    if "$" in text and '"$dict"' in text:
        return encode_sorted(_decode_in_order(text))
    found = decode_swiftly(text) if len(text) > LARGE else None
    if found is None:
        return encode_sorted(decode(text))
    tree = plain_tree(found)
    if tree is None or tree.depth > DEEP:
        return encode_sorted(found)
    return encode_swiftly(in_order(found, tree.depth), has_escapes="\\u" in text) or encode_sorted(found)


def is_same(first: str, second: str) -> bool:
    """Are two texts of the same value? The order of dicts does not count."""
    return first == second or digest(canonical(first)) == digest(canonical(second))


def _sort_pairs(found: dict[str, Any]) -> dict[str, Any]:
    pairs = found.get("$dict")
    return {"$dict": sorted(pairs, key=encode_sorted)} if len(found) == 1 and type(pairs) is list else found


_decode_in_order: Final = make_decode(_sort_pairs)
