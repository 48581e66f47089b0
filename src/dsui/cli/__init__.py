"""The command line: `app` and `main` are those of dsui, or of dsui-runtime where only that is installed.

They are imported when first used, so that the commands of dsui-runtime can import from here without loading the others.
"""

from typing import TYPE_CHECKING

__all__ = ["app", "main"]

if TYPE_CHECKING:
    from dsui.cli.application import app, main
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'dsui.cli' has no attribute {name!r}")
        from importlib import import_module

        from dsui.installed import has_everything

        module = "dsui.cli.application" if has_everything() else "dsui.cli.runtime_application"
        return getattr(import_module(module), name)
