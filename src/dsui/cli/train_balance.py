"""Options of `dsui train` for few images and for classes of uneven size; they are short for settings of the recipe."""

from __future__ import annotations

from typing import Annotated

import typer

from dsui.cli.arguments import check_name

BALANCES = ("none", "sampling", "logits")

BalanceOption = Annotated[
    str | None,
    typer.Option(
        "--balance",
        metavar="HOW",
        help="For classes of uneven size: sampling draws all of them equally often, logits adjusts the loss.  "
        "[default: none]",
        autocompletion=lambda: list(BALANCES),
    ),
]
PatienceOption = Annotated[
    int | None,
    typer.Option(
        "--patience",
        min=0,
        metavar="EPOCHS",
        help="Stop when the held-out loss has not fallen for so many epochs, and keep the best weights.  "
        "[default: never]",
    ),
]


def settings(balance: str | None, patience: int | None) -> dict[str, str]:
    """The settings that the options mean."""
    if balance is not None:
        check_name("balance", balance, BALANCES)
    given = {"balance": balance, "patience": patience}
    return {key: str(value) for key, value in given.items() if value is not None}
