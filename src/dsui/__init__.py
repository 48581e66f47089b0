"""dsui: know when an image classifier should not be trusted."""

from pathlib import Path
from typing import TYPE_CHECKING

from dsui.installed import check_versions

__all__ = ["DualSupervisedLoss", "HeadOutput", "MoGMMHead", "Prediction", "Predictor", "UncertaintyClassifier"]
__version__ = "0.1.0"

check_versions(Path(__file__).parents[1])

if TYPE_CHECKING:
    from dsui.classifier import UncertaintyClassifier
    from dsui.deploy.predictor import Predictor
    from dsui.head import MoGMMHead
    from dsui.head_output import HeadOutput
    from dsui.objectives import DualSupervisedLoss
    from dsui.prediction import Prediction
else:
    # imported when first used: they load PyTorch, and the command line's help and completion shall not wait for it
    _LAZY = {
        "DualSupervisedLoss": "dsui.objectives",
        "HeadOutput": "dsui.head_output",
        "MoGMMHead": "dsui.head",
        "Prediction": "dsui.prediction",
        "Predictor": "dsui.deploy.predictor",
        "UncertaintyClassifier": "dsui.classifier",
    }

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module 'dsui' has no attribute {name!r}")
        from importlib import import_module

        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in {"dsui", "torch"}:
                raise
            raise ImportError(f"dsui.{name} is not in dsui-runtime; run pip install dsui.") from error
