from __future__ import annotations

import torch

torch.set_warn_always(True)  # a warning given only once would fail whichever test happens to run first
