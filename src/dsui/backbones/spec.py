"""Backbones of other libraries by name: SPEC of `--backbone SPEC`.

    timm:NAME                     `timm.create_model(NAME)`
    torchvision:NAME              `torchvision.models.get_model(NAME)`
    hf:NAME                       `transformers.AutoModel`; NAME is one of the hub, or a folder
    package.module:function       a function of one's own, which returns a torch.nn.Module

The first three hold names and weights, and loading them runs no code but the library's. The last one is code. A run
from elsewhere may name any function that can be imported here, so it is called only if the user named it in this
process: with `--backbone package.module:function`, or in Python with `allow`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from importlib.util import find_spec
from traceback import extract_tb
from typing import TYPE_CHECKING

from dsui.errors import DsuiError
from dsui.excerpt import excerpt, shorten

if TYPE_CHECKING:
    from torch import nn

LIBRARIES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}
"""What begins a spec, and the package that it needs, which is also the name of dsui's extra."""
FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_allowed: dict[str, None] = {}
"""In the order in which they were named."""


def is_spec(name: str) -> bool:
    """Whether a backbone's name is such a spec; a user's own module from Python is "own:CLASS" and is none."""
    return ":" in name and not name.startswith("own:")


def is_code(spec: str) -> bool:
    """Whether it names a function of the user's."""
    return spec.partition(":")[0] not in LIBRARIES


def check_spec(spec: str) -> None:
    """Raise unless it has one of the forms, and its library is installed."""
    library, _, name = spec.partition(":")
    if library in LIBRARIES:
        if not name:
            raise DsuiError(f"{spec} names no model; write one behind the colon, as in hf:facebook/dinov2-small.")
        package = LIBRARIES[library]
        if find_spec(package) is None:
            raise DsuiError(f"{spec} needs {package}, which is not installed; run pip install 'dsui[{package}]'.")
    elif not FUNCTION.fullmatch(spec):
        raise DsuiError(
            f"{excerpt(spec)} is no backbone; write timm:NAME, torchvision:NAME, hf:NAME or package.module:function."
        )


def allow(spec: str) -> None:
    """From now on this process may import and call the function that `spec` names."""
    _allowed.pop(spec, None)
    _allowed[spec] = None


def named_function() -> str | None:
    """The function that the user named last, for runs that do not say how their own module was made."""
    return next(reversed(_allowed), None)


def call(spec: str) -> nn.Module:
    """What the function returns; a DsuiError unless the user named it in this process."""
    from torch import nn

    if spec not in _allowed:
        raise DsuiError(
            f"{spec} is code outside dsui, which runs only if you name it yourself: add --backbone {spec} (in Python: "
            "dsui.backbones.spec.allow) if you trust it."
        )
    module_name, _, function = spec.partition(":")
    if os.getcwd() not in sys.path:  # as `python -m` does, and the command dsui does not
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise DsuiError(
            f"{module_name} cannot be imported ({shorten(error)}); work in the folder that holds it, or install it."
        ) from error
    except Exception as error:
        raise DsuiError(f"{module_name} cannot be imported ({_where(error)}); correct it.") from error
    make = getattr(module, function, None)
    if not callable(make):
        raise DsuiError(f"{module_name} has no function {function}; correct --backbone {spec}.")
    try:
        made = make()
    except DsuiError:
        raise
    except Exception as error:
        raise DsuiError(f"{spec} fails ({_where(error)}); correct it, it is called without arguments.") from error
    if not isinstance(made, nn.Module):
        raise DsuiError(f"{spec} returns {type(made).__name__}; return a torch.nn.Module.")
    return made


def _where(error: Exception) -> str:
    """What went wrong in the user's code, and in which line; the whole traceback would hide the sentence."""
    if isinstance(error, SyntaxError):
        return shorten(error)  # it names file and line itself
    last = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {shorten(error)}; line {last.lineno} of {last.filename}"
