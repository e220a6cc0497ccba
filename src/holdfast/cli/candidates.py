"""What a shell may complete: ids and names that are harmless however it types them."""

from __future__ import annotations

from collections.abc import Iterable

from click.shell_completion import CompletionItem

from holdfast.base.hints import is_harmless
from holdfast.cli.text import clean


def candidates(found: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    """The words with what is told about them. A shell types them unquoted, so `order-$(…)` is left for who types it."""
    return [CompletionItem(word, help=clean(told, one_line=True) or None) for word, told in found if is_harmless(word)]
