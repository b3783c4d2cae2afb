"""A small net for the runtimes of PyTorch. net.pt2, net.pte and net_xnnpack.pte were exported from it, with torch 2.13 and executorch 1.4."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def model():
    torch.manual_seed(0)
    return Net()


def inputs():
    return (torch.zeros(1, 3, 32, 32),)
