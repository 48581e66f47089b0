"""Alarms when a stream of predictions is no longer like the calibration images.

Needs numpy and the standard library alone, so that it runs wherever a model runs.
"""

from dsui.monitoring.acceptance import AcceptanceMonitor
from dsui.monitoring.risk import RiskMonitor
from dsui.monitoring.uncertainty import UncertaintyMonitor

__all__ = ["AcceptanceMonitor", "RiskMonitor", "UncertaintyMonitor"]
