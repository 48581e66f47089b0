"""Grids of runs, the demonstration, the verification."""

PAPER_GRIDS = (
    "geometry",
    "ablation",
    "as-printed",
    "accuracy",
    "open-set",
    "noise",
    "misclassification",
    "distributions",
    "ood-pairs",
    "fgsm",
    "tsne",
    "tiny-imagenet-64",
)
"""The grids of the paper, by the order of its tables and figures, and what is added to them."""
ALL_GRIDS = "all"
"""What `dsui reproduce` calls all of them."""
