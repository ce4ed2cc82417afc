from fedrec.methods.fedem import FedEM
from fedrec.testing import MethodSuite


class TestPaperVariant(MethodSuite):
    method = FedEM
    options = {"epochs": 3}
    rounds = 5
    floor = 0.05


class TestCodeVariant(MethodSuite):
    method = FedEM
    options = {"epochs": 3, "variant": "code", "agg_ratio": 0.4}
    rounds = 5
    floor = 0.05
