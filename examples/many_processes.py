"""A capsule network on several GPUs, or on several processes of a CPU, with DistributedDataParallel.

python examples/many_processes.py                                    # one process
torchrun --nproc-per-node=2 examples/many_processes.py               # two, each with half of every batch
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torchcaps as tc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="of all processes together")
    parser.add_argument("--small", action="store_true", help="a few steps, to see that it runs")
    options = parser.parse_args()
    together = "RANK" in os.environ  # started by torchrun
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else "cpu"
    if together:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, processes = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)

    torch.manual_seed(0)  # the same weights and the same order everywhere
    network: nn.Module = nn.Sequential(
        nn.Conv2d(1, 32, 9),
        nn.ReLU(),
        tc.SquashedPrimaryCapsules(32, out_caps=4, out_pose=8, kernel_size=9, stride=2),
        tc.ClassCapsules(4, 8, 10, 16, routing="dynamic"),
    ).to(device)
    if together:
        network = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    train = tc.data.load("mnist_sample", "train")
    order = torch.randperm(len(train))[: 2 * options.batch_size if options.small else len(train)]
    for step, rows in enumerate(order.split(options.batch_size)):
        batch = train.batch(rows[rank::processes])
        loss = nn.functional.cross_entropy(network(batch.image.to(device)).score, batch.label.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}, batches shared by {processes}")
    if together:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
