from fedrec.methods.fedmf import FedMF, Local
from fedrec.testing import MethodSuite


class TestFedMF(MethodSuite):
    method = FedMF
    options = {"lr": 0.02, "init_std": 0.05}
    floor = 0.40


class TestLocal(MethodSuite):
    method = Local
    options = {"lr": 0.1, "init_std": 1.0}
    floor = 0.05
