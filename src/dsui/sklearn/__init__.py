"""Estimators for feature arrays that follow scikit-learn's rules to the letter."""

from dsui.sklearn.density_classifier import DensityClassifier

__all__ = ["DensityClassifier"]
