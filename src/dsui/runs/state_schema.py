"""What a checkpoint holds, checked before a trainer takes anything from it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from dsui.errors import RunError
from dsui.schema import NOTHING, SchemaError, check, either, instance, listed, mapping, number, record, text, whole

TENSORS = mapping(instance(Tensor, "a tensor"), most=1_000_000)
MAPPING = instance(dict, "a mapping")
STATE = record(
    {
        "model": TENSORS,
        "optimizers": listed(
            record({"state": instance(dict, "a mapping"), "param_groups": listed(instance(dict, "a mapping"))})
        ),
        "average": either(record({"updates": either(whole(0), instance(Tensor, "a tensor"))}), NOTHING),
        "meter": TENSORS,
        "steps": whole(0, 1 << 53),
        "phase": whole(-1),
    },
    {
        "images": text(),
        "best": either(record({"epoch": whole(-1), "loss": number(finite=False), "weights": TENSORS}), NOTHING),
    },
)


def check_state(state: Mapping[str, object]) -> None:
    """Raise unless the state of a checkpoint holds every part of a run, each of its kind."""
    try:
        check(state, STATE)
    except SchemaError as error:
        raise RunError(
            f"the checkpoint is not one of this version of dsui ({error}); train again with another --out."
        ) from error
