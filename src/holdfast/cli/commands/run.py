"""`holdfast run`"""

from __future__ import annotations

import click

from holdfast.base.hints import resume_hint
from holdfast.cli.execution import Attempt, Patience, executing, patience_options
from holdfast.cli.setup import Setup, command
from holdfast.cli.source import call_of, one_agent
from holdfast.model import Status


@command("run", here="executes a run in this process")
@click.argument("source", metavar="FILE[:AGENT]")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1)
@click.option(
    "--input", "given_input", metavar="JSON|@FILE|-", help="The arguments as a JSON object, from a file or stdin."
)
@click.option("--id", "run_id", metavar="ID", help="Name the run; with an id that exists, go on with that run.")
@click.option("--thread", "thread_id", metavar="ID", help="The thread the run belongs to.")
@patience_options
def run_command(
    setup: Setup,
    source: str,
    arguments: tuple[str, ...],
    given_input: str | None,
    run_id: str | None,
    thread_id: str | None,
    timeout_s: float | None,
    stays: bool,
) -> int:
    """Execute an agent, or go on with the run that has this id.

    FILE is a Python file or a module; :AGENT may be left out if it has one agent. ARGS are read as the agent's
    annotations say. The result goes to stdout: text as it is, everything else as JSON. What the agent prints goes to
    stderr. Kill it, give the same command with the same --id, and it goes on where it was.

    \b
    holdfast run agent.py:research tides --id issue-7
    holdfast run agent.py --input '{"topic": "tides"}'
    """
    agent = one_agent(source)
    call = call_of(agent, arguments, given_input)

    async def work(attempt: Attempt) -> str | None:
        async with executing(setup, [agent]) as executor:
            run, has_failed = await executor.start_again(call, run_id=run_id, thread_id=thread_id)
            attempt.started(run)
            if has_failed:
                await run.retry(note="run again")
            elif await run.status() in (Status.blocked, Status.in_doubt, Status.waiting):
                await run.resume()
            return await attempt.outcome(run, executor.store)

    def again(found: str, *options: str) -> str:
        return resume_hint(found, source, options=options)

    return Attempt(setup, again, Patience(timeout_s, stays)).execute(work)
