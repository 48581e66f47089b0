"""Whether the packages of a server are installed."""

from __future__ import annotations

from importlib.util import find_spec

from dsui.errors import DsuiError
from dsui.installed import distribution

PACKAGES = {
    "fastapi": "fastapi",
    "onnxruntime": "onnxruntime",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "uvicorn": "uvicorn",
}
"""Names of imports, and of packages."""


def check_installed() -> None:
    """A DsuiError that says what to install."""
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise DsuiError(f"a server needs {', '.join(missing)}; run pip install '{distribution()}[serving]'.")
