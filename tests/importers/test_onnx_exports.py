"""What PyTorch's exporter writes, against the modules themselves."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import mlpoly as mp

D, H = 6, 8


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(D, H), nn.Linear(H, D)

    def forward(self, x):
        return x + self.last(torch.relu(self.first(x)))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(D, H, bias=False), nn.Linear(D, H, bias=False)
        self.down = nn.Linear(H, D, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Rows(nn.Module):
    """Rows made in forward, with the size of the batch."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, 3))

    def forward(self, x):
        return self.net(x.view(x.size(0), -1))


def layers(*activations):
    return nn.Sequential(nn.Linear(D, H), *(part for a in activations for part in (a, nn.Linear(H, H))))


@pytest.mark.parametrize(
    ("module", "activations"),
    [
        (nn.Sequential(nn.Linear(D, H), nn.BatchNorm1d(H), nn.GELU(), nn.Dropout(), nn.Linear(H, 3)), "gelu"),
        (layers(nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Softplus()), "gelu_tanh, silu, mish, softplus"),
        (layers(nn.ReLU6(), nn.Hardtanh(), nn.Hardswish(), nn.LogSigmoid()), "relu6, hardtanh, hardswish, logsigmoid"),
        (layers(nn.Tanhshrink(), nn.Softsign(), nn.CELU(0.5), nn.ELU(2.0)), "tanhshrink, softsign, celu(0.5), elu(2)"),
        (layers(nn.LeakyReLU(0.1), nn.SELU(), nn.Hardsigmoid()), "leaky_relu(0.1), selu, hardsigmoid"),
        (layers(nn.PReLU(H)), "relu"),
        (nn.Sequential(Skip(), Skip(), nn.Linear(D, 2)), "relu"),
        (nn.Sequential(Gate(), nn.Linear(D, 2)), "silu"),
        (Rows(), "relu"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore:.*legacy TorchScript")
def test_exported_modules(module, activations, tmp_path):
    torch.manual_seed(0)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.2, 0.9) if "running" in name else tensor.data.normal_()
    module.eval()
    x = torch.randn(20, D)
    options = {"dynamo": False, "input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
    torch.onnx.export(module, (x,), str(tmp_path / "model.onnx"), **options)
    net = mp.from_onnx(tmp_path / "model.onnx")
    assert net.activation_names == activations
    # In float64, so that only the rounding of the file's constants and of folded weights to float32 is left.
    wide, exact = net.to(x.double().numpy()), module.double()(x.double()).detach().numpy()
    error = abs(wide(x.double().numpy()) - exact).max() / abs(exact).max()
    assert error < 1e-6
