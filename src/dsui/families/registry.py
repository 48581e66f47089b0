"""The families by name; the Gaussians of the paper have one name for each form of their covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dsui.checks import check_choice
from dsui.lazy_registry import LazyRegistry
from dsui.spelling import unknown_name

if TYPE_CHECKING:
    from dsui.families.family import Family

Covariance = Literal["diagonal", "tied", "low-rank"]
GAUSSIANS = {
    "diagonal": "gaussian",
    "tied": "gaussian-tied",
    "low-rank": "gaussian-low-rank",
}
"""The family of a Gaussian, by its covariance."""

FAMILIES: LazyRegistry[type[Family]] = LazyRegistry(
    {
        "gaussian": "dsui.families.gaussian:Gaussian",
        "gaussian-tied": "dsui.families.tied_gaussian:TiedGaussian",
        "gaussian-low-rank": "dsui.families.low_rank_gaussian:LowRankGaussian",
        "student-t": "dsui.families.student_t:StudentT",
        "von-mises-fisher": "dsui.families.von_mises_fisher:VonMisesFisher",
    }
)


def names() -> tuple[str, ...]:
    """All of them, as users spell them."""
    return tuple(FAMILIES)


def find(name: str) -> type[Family]:
    """The class of a family; a ValueError that names the nearest where there is none."""
    if name not in FAMILIES:
        raise ValueError(unknown_name("family", name, FAMILIES))
    return FAMILIES[name]


def name_of(family: str, covariance: Covariance, rank: int | None, project: bool) -> str:
    """The name in the registry; a ValueError that says which settings do not go together."""
    check_choice("covariance", covariance, tuple(GAUSSIANS))
    if family != "gaussian" and covariance != "diagonal":
        raise ValueError(f"covariance is a setting of Gaussians; leave it out for the family {family}.")
    if rank is not None and covariance != "low-rank":
        raise ValueError("rank is a setting of covariance low-rank; leave it out, or choose that covariance.")
    name = GAUSSIANS[covariance] if family == "gaussian" else family
    if find(name).on_sphere and not project:
        raise ValueError(f"the family {family} lives on the sphere; choose a layer that projects (project=true).")
    return name
