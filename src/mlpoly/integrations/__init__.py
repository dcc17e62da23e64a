"""Other libraries' modules in and out; nothing heavy is imported before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from mlpoly.layers import GLU, MLP

__all__ = ["from_torch"]


def from_torch(module: nn.Module) -> MLP | GLU:
    """The weights of a torch module as a record that `fit` takes.

    Nothing is copied and nothing is detached: the record holds the module's own parameters, so a result computed from
    it can be differentiated with respect to them, and an optimiser step on the module shows in the record.

    Parameters
    ----------
    module : torch.nn.Module
        An ``nn.Sequential`` of Linear, activation, Linear; the second Linear may be missing, and the hidden units are
        then the outputs. Dropout and Identity are passed over: the record is the module in evaluation mode. Any other
        module needs an adapter, see `mlpoly.integrations.torch.register_adapter`.

    Returns
    -------
    MLP or GLU

    Raises
    ------
    TypeError
        For a module without an adapter, or a Sequential of another shape; the message says how to go on.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> mp.from_torch(module)
    MLP(3 -> 8 -> 2, gelu)
    """
    try:
        from mlpoly.integrations import torch as integration
    except ImportError as error:
        raise ImportError("from_torch needs PyTorch, which is not installed: pip install 'mlpoly[torch]'.") from error
    return integration.from_torch(module)
