"""News of changed files from the system, by `watchfiles`, which is optional. They only say when to look."""

from __future__ import annotations

from collections.abc import Callable

import watchfiles


async def watch(folder: str, *, is_deep: bool, on_news: Callable[[], None]) -> None:
    """Call `on_news` after every burst of changes, until cancelled; OSError if the folder cannot be watched."""
    news = watchfiles.awatch(
        folder,
        watch_filter=None,
        debounce=200,
        step=20,
        recursive=is_deep,
        ignore_permission_denied=True,
    )
    async for _ in news:
        on_news()
