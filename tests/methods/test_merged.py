"""Every method that can be merged passes the conformance suite with merging clients, too."""

import pytest

from fedrec.errors import ConfigError
from fedrec.methods import BUILT_IN, find
from fedrec.methods.fedfast import FedFast
from fedrec.methods.fedmf import FedMF
from fedrec.methods.fedncf import FedNCF
from fedrec.methods.fedrap import FedRAP
from fedrec.methods.gpfedrec import GPFedRec
from fedrec.methods.pfedrec import PFedRec
from fedrec.parts.merged_method import merged
from fedrec.parts.table_method import TableMethod
from fedrec.testing import MethodSuite

ELASTIC = {"merge": "elastic", "adapter_epochs": 1, "adapter_lr": 0.01}
COVERED = {"fedmf", "fedncf", "fedrap", "fedfast", "gpfedrec", "pfedrec"}


class TestMergedFedMF(MethodSuite):
    method = merged(FedMF)
    options = ELASTIC | {"lr": 0.1, "init_std": 0.01, "epochs": 2}
    rounds = 10
    floor = 0.2


class TestDynamicFedMF(MethodSuite):
    method = merged(FedMF)
    options = ELASTIC | {"merge": "dynamic", "lr": 0.1, "init_std": 0.01, "epochs": 2}
    rounds = 10
    floor = 0.2


class TestMergedFedNCF(MethodSuite):
    method = merged(FedNCF)
    options = ELASTIC | {"variant": "gmf", "lr": 0.3, "init_std": 0.05, "epochs": 2}
    rounds = 10
    floor = 0.19


class TestMergedPFedRec(MethodSuite):
    method = merged(PFedRec)
    options = ELASTIC | {"dim": 8}
    rounds = 6
    floor = 0.2


class TestMergedGPFedRec(MethodSuite):
    method = merged(GPFedRec)
    options = ELASTIC | {"dim": 8, "reg": 0.25, "score_table": "global", "init_std": 0.1}
    rounds = 8
    floor = 0.21


class TestMergedFedRAP(MethodSuite):
    method = merged(FedRAP)
    options = ELASTIC | {"dim": 8, "init_std": 0.1, "lr_args": 200.0, "l2": 4e-3, "epochs": 2, "lam": 0.01, "mu": 0.01}
    rounds = 4
    floor = 0.2


class TestMergedFedFast(MethodSuite):
    method = merged(FedFast)
    options = ELASTIC | {"lr": 0.1, "init_std": 0.01, "clusters": 3, "first_clusters": "random"}
    rounds = 15
    floor = 0.22


ENGINE = ELASTIC | {"merge_variant": "code", "agg_ratio": 0.7, "adapter_lr": 0.003}
"""As in FedEM's released engine, but most clients are served: with a few there is next to no federation."""


class TestEngineFedMF(MethodSuite):
    method = merged(FedMF)
    options = ENGINE | {"lr": 0.1, "init_std": 0.01, "epochs": 2}
    rounds = 10
    floor = 0.2


class TestEngineFedNCF(MethodSuite):
    method = merged(FedNCF)
    options = ENGINE | {"variant": "gmf", "lr": 0.3, "init_std": 0.05, "epochs": 2}
    rounds = 10
    floor = 0.19
    tolerance = 5e-5  # at this rate Adam makes 2e-5 of rounding where gradients cancel: in one or two cells of a table


class TestEnginePFedRec(MethodSuite):
    method = merged(PFedRec)
    options = ENGINE | {"dim": 8, "score": "own"}
    rounds = 6
    floor = 0.2


class TestEngineGPFedRec(MethodSuite):
    method = merged(GPFedRec)
    options = ENGINE | {"agg_ratio": 0.9, "dim": 8, "reg": 0.25, "score_table": "global", "init_std": 0.1}
    rounds = 8
    floor = 0.21


class TestEngineFedRAP(MethodSuite):
    method = merged(FedRAP)
    options = ENGINE | {"dim": 8, "init_std": 0.1, "lr_args": 200.0, "l2": 4e-3, "epochs": 2, "lam": 0.01, "mu": 0.01}
    rounds = 4
    floor = 0.2


def test_no_method_that_can_be_merged_is_left_out():
    assert {name for name in BUILT_IN if issubclass(find(name), TableMethod)} == COVERED


@pytest.mark.parametrize("name", ["popularity", "local", "colr", "ease"])
def test_methods_without_a_downloaded_table_are_refused(name):
    with pytest.raises(ConfigError, match="downloads no item table"):
        merged(find(name))
