import pytest

import fedrec
from report.samples import train_all, write_study


@pytest.fixture(scope="session")
def runs(small, tmp_path_factory):
    leaking = fedrec.PAPER.with_options(min_interactions=5, candidates=20).split(small.data, seed=0)
    return train_all(small, leaking, tmp_path_factory.mktemp("report") / "cells")


@pytest.fixture(scope="session")
def study(runs, tmp_path_factory):
    return write_study(runs, runs["mf"].parents[1] / "studies" / "tiny")
