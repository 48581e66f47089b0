"""Features in two dimensions by t-SNE (van der Maaten and Hinton, JMLR 2008), with openTSNE.

Distances within a cluster and between near ones mean something; sizes of clusters and long distances do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsui.checks import require
from dsui.evaluation.cache import StoredOutputs

PACKAGE = "openTSNE"
PERPLEXITY, SEED = 30.0, 0
Positions = NDArray[np.float64]


class FeatureSample(NamedTuple):
    """`indices` [n] of the images, and their features [n, M]."""

    indices: Tensor
    features: Tensor


def sample_features(stored: StoredOutputs, most: int) -> FeatureSample:
    """Of at most this many images, evenly spaced; read chunk by chunk, since all features may not fit into memory."""
    indices = evenly_spaced(stored.count, most)
    found, start = [], 0
    for chunk in stored.chunks():
        inside = (indices >= start) & (indices < start + len(chunk))
        found.append(chunk.features[indices[inside] - start])
        start += len(chunk)
    return FeatureSample(indices, torch.cat(found))


def evenly_spaced(images: int, most: int) -> Tensor:
    """Indices of at most `most` of that many images."""
    return torch.arange(min(images, most)) * images // min(images, most)


def tsne(features: Tensor) -> Positions:
    """[N, M] to [N, 2]; the same features always get the same positions."""
    require(PACKAGE)
    from openTSNE import TSNE

    if bool((features == features[:1]).all()):
        return np.zeros((len(features), 2))
    perplexity = min(PERPLEXITY, max(1.0, (len(features) - 1) / 3))
    settings = {"initialization": "pca", "neighbors": "exact", "negative_gradient_method": "bh"}
    fitted = TSNE(perplexity=perplexity, random_state=SEED, n_jobs=1, **settings).fit(features.double().numpy())
    return np.asarray(fitted)
