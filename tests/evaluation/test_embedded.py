"""Foreign images for a run on features are prepared once, as its network wants them, wherever they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from dsui.backbones.backbone import Backbone
from dsui.backbones.named import NamedBackbone
from dsui.backbones.preparation import Preparation
from dsui.data.dataset import ImageSet, MemorySet
from dsui.data.foreign import foreign_folder
from dsui.evaluation.embedded import embedded
from dsui.runs.embedding import Embedder

CUT = Preparation(size=8, edge=12, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
"""Of an image that is prepared twice, the middle is cut out twice."""
SIDE = 20


class Pixels(Backbone):
    """Pixels as features."""

    out_features = 3 * CUT.size**2

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


def test_images_of_a_folder_and_published_ones_are_prepared_once(tmp_path: Path) -> None:
    values = torch.randint(0, 256, (SIDE, SIDE, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    image = Image.fromarray(values.numpy())
    image.save(tmp_path / "a.png")
    expected = torch.from_numpy(np.array(CUT.apply(image))).permute(2, 0, 1).flatten().float() / 255
    folder = foreign_folder(tmp_path, CUT.size, 3, preparation=CUT)
    published = MemorySet("published", ("a",), values.permute(2, 0, 1)[None], torch.zeros(1, dtype=torch.int64))
    sets: tuple[ImageSet, ...] = (folder, published)
    for images in sets:
        found = embedded(images, Embedder(NamedBackbone(Pixels(), CUT), torch.device("cpu")))
        torch.testing.assert_close(found.read(torch.tensor([0])).flatten(), expected)
