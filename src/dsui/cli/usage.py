"""Wrong usage is answered with one sentence, the nearest command or option in it, and exit status 2."""

from __future__ import annotations

import sys
from typing import Any, cast

import typer
from typer.core import TyperGroup

from dsui.spelling import unknown_name

UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""What typer raises for all wrong usage; it exports none but the one below it."""
STOPPED = 130
"""Exit status after Ctrl-C, as shells have it."""


class Commands(TyperGroup):
    """A group of commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        commands = self.list_commands(ctx)
        if args[0] not in commands and not ctx.resilient_parsing:
            ctx.fail(unknown_name("command", args[0], commands))
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        try:
            status = super().main(*args, standalone_mode=False, **extra)  # type: ignore[misc]
        except UsageError as mistake:
            if not standalone_mode:
                raise
            say(_sentence(mistake))
            sys.exit(2)
        if not standalone_mode:
            return status
        if status == STOPPED:
            say("stopped.")
        sys.exit(status or 0)


def say(sentence: object) -> None:
    """To stderr, on one line."""
    typer.echo(f"dsui: {' '.join(str(sentence).splitlines())}", err=True)


def _sentence(mistake: typer.BadParameter) -> str:
    words = mistake.format_message().rstrip(". ")
    if hasattr(mistake, "possibilities"):  # of an unknown option alone
        words = f"no option {mistake.option_name}"  # type: ignore[attr-defined]
        if mistake.possibilities:
            return f"{words}; did you mean {mistake.possibilities[0]}?"
    return f"{words}; see `{mistake.ctx.command_path} --help`." if mistake.ctx else f"{words}."
