"""Errors of a user, answered with one sentence on stderr and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import typer
from typer.core import TyperGroup

from dsui.cli.terminal import print_line
from dsui.errors import DataError, DsuiError, Stopped
from dsui.spelling import unknown_name

ParserError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""The base class of all errors that typer raises for wrong usage; typer itself exports only one of its subclasses."""
FAILED, WRONG_USAGE, STOPPED = 1, 2, 130
"""Exit statuses; 130 after Ctrl-C is the convention of shells."""
NO_MEMORY = "DefaultCPUAllocator"
"""Part of PyTorch's message when the machine has no memory left."""


class UsageError(DsuiError):
    """The user typed something that cannot be right; the command line exits with 2."""


class UnknownDataError(UsageError, DataError):
    """No data set has that name."""


@contextmanager
def as_usage_errors() -> Iterator[None]:
    """Errors of the library in this block are caused by what the user typed."""
    try:
        yield
    except (DsuiError, ValueError) as error:
        raise UsageError(str(error)) from error


class CommandGroup(TyperGroup):
    """A group of commands that answers wrong usage with one sentence and suggests the nearest command or option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print_line(ctx.get_help(), err=True)
            ctx.exit(WRONG_USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        commands = self.list_commands(ctx)
        if args[0] not in commands and not ctx.resilient_parsing:
            ctx.fail(unknown_name("command", args[0], commands))
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        try:
            status = super().main(*args, standalone_mode=False, **extra)  # type: ignore[misc]
        except ParserError as error:
            if not standalone_mode:
                raise
            print_error(_parser_message(error))
            sys.exit(WRONG_USAGE)
        if not standalone_mode:
            return status
        if status == STOPPED:
            print_error("stopped.")
        sys.exit(status or 0)


@contextmanager
def exit_with_a_sentence() -> Iterator[None]:
    """Turn errors in this block into a sentence on stderr and an exit status; errors of the program itself pass."""
    try:
        yield
    except (DsuiError, ValueError) as error:
        print_error(error)
        sys.exit(STOPPED if isinstance(error, Stopped) else WRONG_USAGE if isinstance(error, UsageError) else FAILED)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and NO_MEMORY not in str(error):
            raise
        print_error("there is not enough memory for this; choose smaller images, a smaller batch or fewer components.")
        sys.exit(FAILED)
    except KeyboardInterrupt:
        print_error("stopped.")
        sys.exit(STOPPED)
    except OSError as error:
        what, why = error.filename or "the output", error.strerror or error
        print_error(f"{what} cannot be used ({why}); correct this and run the command again.")
        sys.exit(FAILED)


def print_error(sentence: object) -> None:
    """Print to stderr, on one line."""
    print_line(f"dsui: {' '.join(str(sentence).splitlines())}", err=True)


def _parser_message(error: typer.BadParameter) -> str:
    sentence = error.format_message().rstrip(". ")
    if hasattr(error, "possibilities"):  # only unknown options have them
        sentence = f"no option {error.option_name}"  # type: ignore[attr-defined]
        if error.possibilities:
            return f"{sentence}; did you mean {error.possibilities[0]}?"
    return f"{sentence}; see `{error.ctx.command_path} --help`." if error.ctx else f"{sentence}."
