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
    bash:  eval "$(holdfast completion bash)"        in ~/.bashrc
    zsh:   eval "$(holdfast completion zsh)"         in ~/.zshrc
    fish:  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE")
    # BashComplete.source() runs bash to look at its version; the script itself needs none.
    text = super(BashComplete, script).source() if isinstance(script, BashComplete) else script.source()
    print(to_json({"shell": shell, "script": text}) if setup.is_json else text)
    return 0
