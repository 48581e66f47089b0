"""Grids of runs, the demonstration, the verification."""

PAPER_GRIDS = (
    "geometry",
    "ablation",
    "as-printed",
    "cifar10-paper",
    "paper-sets",
    "open-set",
    "distributions",
    "tsne",
    "tiny-imagenet-64",
)
"""What docs/paper.md is made of: the paper's tables and figures with the settings frozen on CIFAR-10, and what is added
to them. `accuracy`, `noise` and the others of the paper's own layout have every method's plain defaults."""
ALL_GRIDS = "all"
"""What `dsui reproduce` calls all of them."""
