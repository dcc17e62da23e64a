"""Groups of tokens by k-means of a block's inputs."""

import json

import numpy as np
import pytest
import torch
from support.backends import assert_close
from support.tiny_models import Lookup

from mlpoly.lm import TokenClusters, collect


def crowds(count=4, size=50, d=6, far=8.0):
    """A table of tokens in well-separated crowds, one after the other, and the crowd of each."""
    draw = torch.Generator().manual_seed(1)
    places = far * torch.nn.functional.normalize(torch.randn(count, d, generator=draw), dim=1)
    labels = torch.arange(count).repeat_interleave(size)
    return places[labels] + 0.3 * torch.randn(count * size, d, generator=draw), labels


def shuffled(n, seed=0):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).reshape(4, -1)


def test_crowds_of_inputs_become_the_groups():
    table, labels = crowds()
    ids = shuffled(200)
    moments = collect(Lookup(table), [ids, *ids.split(1)], groups="clusters")
    groups = moments.groups("mlp")
    assert len(groups) == 4 and {part.count for part in groups.values()} == {100}  # every token was seen twice
    means = torch.stack([table[labels == n].mean(0) for n in range(4)]).double()
    for part in groups.values():
        assert torch.cdist(part.mean[None], means).min() < 1e-6


def test_every_centre_is_the_mean_of_the_inputs_nearest_to_it():
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(2))
    rule, nowhere = TokenClusters(3), torch.zeros(300, dtype=torch.long)
    rule.calibrate("a", x)
    found = rule.numbers("a", x, nowhere, nowhere)
    means = torch.stack([x[found == n].mean(0) for n in range(3)])
    assert torch.equal(torch.cdist(x, means).argmin(1), found)


def test_the_same_seed_gives_the_same_groups_and_others_do_not_merge():
    model = Lookup(crowds(8, 20, far=1.0)[0])
    one, two = ([shuffled(160, seed)] for seed in (0, 1))
    first, again = (collect(model, one, groups=TokenClusters(3)) for _ in range(2))
    kind = first.provenance["groups"]["kind"]
    assert kind == again.provenance["groups"]["kind"] and kind.startswith("clusters 3 seed 0 centres ")
    assert_close(first.mixture("mlp").means, again.mixture("mlp").means, 0.0)
    merged = first.merge(again)
    assert merged.tokens == 320
    assert_close(merged.mixture("mlp").means, first.mixture("mlp").means, 1e-12)
    for other in (collect(model, one, groups=TokenClusters(3, seed=1)), collect(model, two, groups=TokenClusters(3))):
        with pytest.raises(ValueError, match="chosen by different rules"):
            first.merge(other)
    json.dumps(first.provenance)  # it travels in files


def test_fewer_different_inputs_than_clusters():
    table = torch.eye(3)
    moments = collect(Lookup(table), [torch.tensor([[0, 1, 2, 0, 1, 2]])], groups=TokenClusters(8))
    assert sorted(part.count for part in moments.groups("mlp").values()) == [2, 2, 2]
    same = collect(Lookup(torch.ones(2, 3)), [torch.tensor([[0, 1]])], groups=TokenClusters(2))
    assert [part.count for part in same.groups("mlp").values()] == [2]


def test_what_is_wrong_with_groups():
    with pytest.raises(ValueError, match="count must be at least 2"):
        TokenClusters(1)
    with pytest.raises(ValueError, match=r"mlpoly\.lm\.TokenClusters\(count\)"):
        collect(Lookup(torch.eye(3)), [torch.tensor([[0]])], groups=np.ones(3))
