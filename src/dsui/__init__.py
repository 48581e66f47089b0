"""dsui: know when an image classifier should not be trusted."""

from dsui.head import HeadOutput, MoGMMHead
from dsui.objectives import DualSupervisedLoss

__all__ = ["DualSupervisedLoss", "HeadOutput", "MoGMMHead"]
__version__ = "0.1.0"
