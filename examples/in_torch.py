"""Run a schedule of schedir's in PyTorch's own pipelining runtime, one process for each device.

torchrun --nproc-per-node 2 examples/in_torch.py zb-h1
torchrun --nproc-per-node 2 examples/in_torch.py mine.csv
schedir show zb-h1 --devices 2 --micro-batches 4
"""

import sys

import torch
from torch import distributed, nn

from executor.torch_runtime import TorchRuntime
from schedir.compiler import find_program


def main(schedule: str) -> None:
    """Train on one mini-batch three times; gradients are means over micro-batches, as everywhere in schedir."""
    distributed.init_process_group("gloo")
    program = find_program(schedule, default_counts={"num_devices": distributed.get_world_size(), "num_micro_batches": 4})
    torch.manual_seed(0)
    model = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(program.num_stages)]
    runtime = TorchRuntime(program, model, loss=nn.functional.mse_loss)
    optimizers = [torch.optim.SGD(model[stage].parameters(), lr=0.5) for stage in runtime.stages]
    inputs, targets = torch.randn(2, 8, 16)
    for number in range(3):
        loss = runtime.step(inputs, targets)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if loss is not None:
            print(f"mini-batch {number}: loss {loss:.4f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
