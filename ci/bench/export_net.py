"""A net of torchvision as an exported file: PyTorch's .pt2, or ExecuTorch's .pte for XNNPACK: `python ci/bench/export_net.py NET FILE`.

The interpreter is that of the runtime's environment, made with `memprof runtimes install torch --with torchvision` and the same for executorch.
The weights are random. The net has its batch norms: to fold them is the runtime's matter, as it is with the files that people export.
"""

from __future__ import annotations

import sys
from pathlib import Path

_EXTENTS = {"inception_v3": 299, "mobilenet_v2": 224}
_SETTINGS = {"inception_v3": {"aux_logits": False, "init_weights": False}}


def main() -> None:
    """Write the file that the command line names."""
    net, path = sys.argv[1], Path(sys.argv[2])
    try:
        import torch
        from torchvision import models
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not in this environment: memprof runtimes install RUNTIME --with torchvision")
    torch.manual_seed(0)
    module = models.get_model(net, weights=None, **_SETTINGS.get(net, {})).eval()
    with torch.no_grad():
        program = torch.export.export(module, (torch.zeros(1, 3, _EXTENTS[net], _EXTENTS[net]),))
    if path.suffix == ".pt2":
        torch.export.save(program, path)
        return
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    with path.open("wb") as file:
        lowered.to_executorch().write_to_file(file)


if __name__ == "__main__":
    main()
