"""What trained runs know: outputs on disk, scores, metrics and the five tasks (`dsui.evaluation.tasks`)."""

TASKS = ("misclassification", "ood", "open-set", "noise", "fgsm")
