"""`holdfast retention`"""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import complete_agent, with_app
from holdfast.cli.durations import age, age_text
from holdfast.cli.failure import OK, USAGE, Failure
from holdfast.cli.lists import Listed, ago, show_list, stamp
from holdfast.cli.setup import Setup, command
from holdfast.cli.text import clean, to_json
from holdfast.control.upkeep.retention import RetentionInfo
from holdfast.history.words import count

_FOR_EVER = "forever"


@command("retention")
@click.argument("agent", required=False, shell_complete=complete_agent)
@click.option("--keep", metavar="AGE|forever", help="How long runs are kept once they have ended: 30d, 12h, …")
@click.option("--off", is_flag=True, help="Take the rule away.")
@actor_options
def retention_command(setup: Setup, agent: str | None, keep: str | None, off: bool, *, note: str, by: str) -> int:
    """List for how long runs are kept; or change it for an agent.

    Workers prune runs that ended longer ago, a little at a time. The agent '*' means all that have no rule of their
    own; without any rule nothing is removed. Piped, lines of: agent, how long, when it was done last, how many runs.

    \b
    holdfast retention newsletter --keep 30d
    holdfast retention '*' --keep 90d
    holdfast retention newsletter --off
    """
    if keep is not None and off:
        raise Failure("Give --keep or --off, not both.", USAGE)
    if agent is None and (keep is not None or off):
        raise Failure("Of which agent? Name it, or '*' for all that have no rule of their own.", USAGE)
    length = None if keep is None else timedelta.max if keep == _FOR_EVER else age(keep, "--keep")
    is_change = off or length is not None

    async def work(app: Holdfast) -> list[RetentionInfo]:
        if agent is not None and is_change:
            await app.retain(agent, keep=length, by=by, note=note)
        return [rule for rule in await app.retention() if agent is None or rule.agent == agent]

    rules = with_app(setup, work)
    if not is_change:
        show_list(
            setup,
            [_listed(rule) for rule in rules],
            head=("AGENT", "KEPT", "LAST PRUNED", "RUNS"),
            flexible=0,
            nothing="No rule: runs are kept until they are pruned. `holdfast retention AGENT --keep 30d` makes one.",
            footer=count(len(rules), "rule"),
        )
    elif setup.is_json:
        print(to_json(_listed(rules[0]).facts if rules else {"agent": agent, "keep_s": None, "off": True}))
    else:
        whose = "agents without a rule of their own" if agent == "*" else str(agent)
        if off:
            text = f"Runs of {whose} are kept until they are pruned."
        elif length == timedelta.max:
            text = f"Runs of {whose} are kept for ever."
        else:
            assert length is not None
            text = f"Runs of {whose} are kept for {age_text(length)} once they have ended; workers see to it."
        print(clean(text, one_line=True))
    return OK


def _listed(rule: RetentionInfo) -> Listed:
    keep = _FOR_EVER if rule.keep is None else age_text(rule.keep)
    facts = {
        "agent": rule.agent,
        "keep_s": None if rule.keep is None else rule.keep.total_seconds(),
        "last_at": stamp(rule.last_at),
        "last_runs": rule.last_runs,
    }
    last = f"{ago(rule.last_at)} ago" if rule.last_at is not None else "–"
    return Listed(
        facts, (rule.agent, keep, stamp(rule.last_at), rule.last_runs), (rule.agent, keep, last, str(rule.last_runs))
    )
