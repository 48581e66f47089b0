from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)  # threads of small tensors wait for each other longer than they work on a busy machine
torch.set_warn_always(True)  # a warning given only once would fail whichever test happens to run first
settings.register_profile("dsui", deadline=None)  # a busy machine is no failure
settings.load_profile("dsui")
