"""Every screen of the console, as an address, and what is there once it is drawn."""

from __future__ import annotations

from typing import Final

#: name: (path, what is seen once it is there)
SCREENS: Final[dict[str, tuple[str, str]]] = {
    "overview": ("/", ".needs li"),
    "runs": ("/runs", ".runs tbody tr"),
    "runs-filtered": ("/runs?q=status%3Afailed", ".runs tbody tr"),
    "runs-none": ("/runs?q=agent%3Anobody", ".empty"),
    "runs-wrong": ("/runs?q=state%3Afailed", ".filter-box .error"),
    "run": ("/runs/report-sea-level?call=publish_pr%231", ".inspector .steps li"),
    "run-story": ("/runs/report-sea-level?tab=story", ".story li"),
    "run-journal": ("/runs/report-sea-level?tab=journal", ".record:nth-child(9)"),
    "run-activity": ("/runs/report-sea-level?tab=activity", ".activity li"),
    "run-children": ("/runs/report-sea-level?tab=children", ".panel .lines li"),
    "run-values": ("/runs/report-sea-level?tab=values", ".values .json"),
    "run-gap": ("/runs/handbook-shop", ".receipts li p"),
    "run-state": ("/runs/handbook-shop?tab=state", ".diff ins"),
    "run-artifacts": ("/runs/handbook-shop?tab=artifacts", ".table tbody tr"),
    "run-streams": ("/runs/handbook-shop?tab=streams", ".salvaged"),
    "run-blocked": ("/runs/l10n-pricing", ".banner.bad"),
    "run-cut-off": ("/runs/crawl-docs", ".banner.warn"),
    "run-damaged": ("/runs/refund-7750", ".banner.bad"),
    "run-failed": ("/runs/ticket-4303", ".banner.bad"),
    "run-missing": ("/runs/nobody", ".empty"),
    "questions": ("/questions", ".split-list li"),
    "in-doubt": ("/in-doubt", ".doubt-card .json"),
    "schedules": ("/schedules", ".table tbody tr"),
    "triggers": ("/triggers", ".lines li"),
    "queues": ("/queues", ".table tbody tr"),
    "workers": ("/workers", ".table tbody tr"),
    "threads": ("/threads", ".table tbody tr"),
    "thread": ("/threads/t_editorial", ".bubble"),
    "integrity": ("/integrity", ".facts"),
    "compare": ("/compare?a=report-tides&b=report-sea-level", ".table tbody tr"),
    "nowhere": ("/overview/x", ".needs li"),
}
