"""Registries: names cost no import, and every name leads to what it names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dsui.backbones.backbone import Backbone
from dsui.backbones.registry import BACKBONES
from dsui.data.registry import DATASETS, PSEUDO
from dsui.detectors.detector import Detector
from dsui.detectors.registry import DETECTORS
from dsui.lazy_registry import LazyRegistry
from dsui.methods.method import Method
from dsui.methods.registry import METHODS

NAMES_ALONE = """
import sys
from dsui.backbones.registry import BACKBONES
from dsui.data.registry import DATASETS, PSEUDO
from dsui.detectors.registry import DETECTORS
from dsui.methods.registry import METHODS
registries = (BACKBONES, DATASETS, PSEUDO, DETECTORS, METHODS)
print(all(name in registry for registry in registries for name in registry), {"torch", "numpy"} & set(sys.modules))
"""


def test_names_are_listed_without_importing_pytorch() -> None:
    answer = subprocess.run([sys.executable, "-c", NAMES_ALONE], capture_output=True, text=True, check=True)
    assert answer.stdout == "True set()\n"


@pytest.mark.parametrize(("registry", "base"), [(METHODS, Method), (DETECTORS, Detector), (BACKBONES, Backbone)])
def test_every_name_leads_to_a_class_of_its_own(registry: LazyRegistry[type], base: type) -> None:
    classes = list(registry.values())
    assert all(issubclass(each, base) for each in classes)
    assert len(set(classes)) == len(registry)


def test_every_data_set_is_registered_under_its_own_name() -> None:
    assert [entry.name for entry in DATASETS.values()] == list(DATASETS)
    assert [function.__name__ for function in PSEUDO.values()] == list(PSEUDO)


def test_an_entry_is_an_address_or_the_object_itself() -> None:
    registry: LazyRegistry[type] = LazyRegistry({"ordered": "collections:OrderedDict"})
    registry["plain"] = dict
    registry["counter"] = "collections:Counter"
    assert [each.__name__ for each in registry.values()] == ["OrderedDict", "dict", "Counter"]
    del registry["plain"]
    assert list(registry) == ["ordered", "counter"]
    assert len(registry) == 2
    assert "plain" not in registry
    with pytest.raises(KeyError):
        registry["plain"]


def test_an_address_that_leads_nowhere_fails_when_it_is_looked_up() -> None:
    registry: LazyRegistry[type] = LazyRegistry({"gone": "dsui.methods.gone:Gone", "lost": "dsui.methods.msp:Lost"})
    assert list(registry) == ["gone", "lost"]
    with pytest.raises(ModuleNotFoundError, match=r"dsui\.methods\.gone"):
        registry["gone"]
    with pytest.raises(AttributeError, match="Lost"):
        registry["lost"]
