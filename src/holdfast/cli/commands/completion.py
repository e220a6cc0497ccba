"""`holdfast completion`"""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, get_completion_class

from holdfast.cli.setup import Setup, command
from holdfast.cli.text import to_json


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, setup: Setup, shell: str) -> int:
    """Print the completion script for a shell.

    \b
    ~/.bashrc:  eval "$(holdfast completion bash)"
    ~/.zshrc:   eval "$(holdfast completion zsh)"
    ~/.config/fish/config.fish:
                holdfast completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE")
    # BashComplete.source() runs bash to look at its version; the script itself needs none.
    text = super(BashComplete, script).source() if isinstance(script, BashComplete) else script.source()
    print(to_json({"shell": shell, "script": text}) if setup.is_json else text)
    return 0
