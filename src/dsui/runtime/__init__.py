"""Predictions of ONNX files with numpy, Pillow and ONNX Runtime alone; PyTorch is not needed."""

from dsui.data.decode import ImageError
from dsui.prediction import Prediction
from dsui.runtime.predictor import OnnxPredictor

__all__ = ["ImageError", "OnnxPredictor", "Prediction"]
