"""Packages that only figures and pages need, so that a plain installation has none of them."""

from __future__ import annotations

from importlib.util import find_spec

from dsui.errors import DsuiError


def require(*packages: str) -> None:
    """Raise unless all of these can be imported."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise DsuiError(f"figures and reports need {' and '.join(missing)}; run pip install {' '.join(missing)}.")
