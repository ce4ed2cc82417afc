"""The conformance suite: what every method must do, in a few lines of test.

    class TestMine(MethodSuite):
        method = Mine
        options = {"lr": 0.05}
        floor = 0.45

Beside these ``rounds`` (of the accuracy test), ``at_chance``, ``tolerance``, ``deterministic`` and ``federated`` may be
set, see below.
Works for methods outside this package too; needs pytest.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import fedrec
from fedrec.errors import ConfigError, DataError
from fedrec.evaluation import Evaluator
from fedrec.federation.arrows import Arrows
from fedrec.federation.central_privacy import CentralPrivacy, CentralStage
from fedrec.federation.method import EachMethod, SumMethod
from fedrec.federation.payload import Upload
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.recommender import Recommender
from fedrec.federation.simulation import Simulation
from fedrec.federation.total import Total
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.parts.merged_method import MergedMethod, merged
from fedrec.parts.table_method import TableMethod
from fedrec.running.saved import read_result, restore
from fedrec.running.training import train
from fedrec.testing.probes import Kept, emptied, frozen

CHANCE = 0.1
"""HR@10 of random scores among 100 items."""
ROOM = 0.05
"""Between untrained scores and a floor: nearly four standard errors of the share of 500 clients that chance hits."""


def few(first: int, clients: int) -> fedrec.Split:
    """Some clients of the embedded data, numbered from 0, under the honest protocol."""
    data = fedrec.load("demo")
    rows = np.nonzero((data.users >= first) & (data.users < first + clients))[0]
    frame = {
        "user": [data.user_ids[u] for u in data.users[rows]],
        "item": [data.item_ids[i] for i in data.items[rows]],
        "timestamp": np.asarray(data.timestamps)[rows].tolist(),
    }
    return fedrec.HONEST.with_options(candidates=50).split(fedrec.from_frame(frame), seed=0)


class MethodSuite:
    """Inherit, name the method, and pytest does the rest."""

    method: ClassVar[Any]
    """A method class, or a function that makes a method from options."""
    options: ClassVar[dict[str, Any]] = {}
    rounds: ClassVar[int] = 20
    """Rounds on the embedded data for the accuracy tests."""
    floor: ClassVar[float] = 0.2
    """HR@10 (honest, sampled) on the embedded data that it reaches trained and is well below untrained."""
    at_chance: ClassVar[str] = ""
    """Why no training can raise that above chance, for a method of which nobody expects it; it has no floor then."""
    tolerance: ClassVar[float] = 1e-5
    """Largest difference, relative to the largest value, that one round makes between cohorts of one and of many."""
    cuda_tolerance: ClassVar[float] = 1e-3
    """The same between two rounds on the CPU and on a CUDA device, which add in another order."""
    deterministic: ClassVar[bool] = False
    """True if the method has no randomness at all, so that seeds do not matter."""
    private_options: ClassVar[dict[str, Any]] = {}
    """Settings with which uploads may pass a privacy stage, where noise would make nonsense of the suite's."""
    federated: ClassVar[bool] = True
    """False for centralised methods, which have no cohorts and send nothing."""

    def make(self, **options: Any) -> Recommender:
        """A fresh method."""
        made: Recommender = type(self).method(**(self.options | options))
        return made

    def make_arrows(self, **options: Any) -> Arrows:
        """A fresh federated method; skips where the suite is of a centralised one."""
        method = self.make(**options)
        if not self.federated:
            pytest.skip("a centralised method has no arrows")
        assert isinstance(method, Arrows)
        return method

    def trainer(self, split: fedrec.Split, *, seed: int = 0, device: str = "cpu", **options: Any) -> Any:
        """The method's trainer, on the CPU unless told otherwise."""
        return self.make(**options).trainer(split.training, Setup(seed, torch.device(device)))

    @pytest.fixture(scope="class")
    @classmethod
    def demo_split(cls) -> fedrec.Split:
        """The embedded data under the honest protocol."""
        return fedrec.HONEST.split(fedrec.load("demo"), seed=0)

    @pytest.fixture(scope="class")
    @classmethod
    def tiny(cls) -> fedrec.Split:
        """Thirty clients of the embedded data."""
        return few(0, 30)

    def test_config_round_trip(self) -> None:
        method = self.make()
        again = type(method.config)(**method.config.model_dump(mode="json"))
        assert again == method.config

    def test_unknown_setting_is_one_sentence(self) -> None:
        with pytest.raises(ConfigError, match="unknown setting"):
            self.make(no_such_setting=1)

    def test_scores_are_finite_and_of_the_right_shape(self, tiny: fedrec.Split) -> None:
        trainer = self.trainer(tiny)
        for number in range(2):
            trainer.round(number)
        scores = trainer.scores(torch.tensor([5, 0, 29]))
        assert scores.shape == (3, tiny.data.n_items)
        assert bool(torch.isfinite(scores).all())
        assert torch.allclose(scores[1:2], trainer.scores(torch.tensor([0])), atol=1e-5)

    @pytest.mark.parametrize("first", [0, 150])
    def test_batch_equals_one_by_one(self, first: int) -> None:
        # Both start every round from the same state: over rounds, training at high rates makes rounding grow.
        split = few(first, 30)
        together, alone = (Simulation(self.make_arrows(), split.training, cohort_samples=size) for size in (None, 1))
        for number in range(3):
            alone.load_state({name: value.clone() for name, value in together.state().items()})
            reports = [simulation.round(number) for simulation in (together, alone)]
            assert reports[0].loss == pytest.approx(reports[1].loss, rel=self.tolerance, nan_ok=True)
            for what in ("clients", "bytes_up", "bytes_down"):
                assert getattr(reports[0], what) == getattr(reports[1], what)
            found = [{"scores": s.scores(torch.arange(30))} | s.store.tensors for s in (together, alone)]
            for name in found[0]:
                one, other = (tensors[name].double() for tensors in found)
                room = self.tolerance * max(1.0, float(one.abs().max()))
                assert float((one - other).abs().max()) <= room, name

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_cuda_gives_the_same(self, tiny: fedrec.Split) -> None:
        everybody, found = torch.arange(tiny.data.n_users), []
        for device in ("cpu", "cuda"):
            trainer = self.trainer(tiny, device=device)
            for number in range(2):
                trainer.round(number)
            found.append(trainer.scores(everybody).cpu())
        assert (found[0] - found[1]).abs().max() <= self.cuda_tolerance * max(1.0, float(found[0].abs().max()))

    def test_resume_is_bit_identical(self, tiny: fedrec.Split) -> None:
        whole, first, second = (self.trainer(tiny) for _ in range(3))
        for number in range(4):
            whole.round(number)
        for number in range(2):
            first.round(number)
        second.load_state({name: value.clone() for name, value in first.state().items()})
        for number in range(2, 4):
            second.round(number)
        everybody = torch.arange(tiny.data.n_users)
        assert torch.equal(whole.scores(everybody), second.scores(everybody))

    def test_seeds(self, tiny: fedrec.Split) -> None:
        everybody = torch.arange(tiny.data.n_users)
        found = []
        for seed in (0, 0, 1):
            trainer = self.trainer(tiny, seed=seed)
            trainer.round(0)
            found.append(trainer.scores(everybody))
        assert torch.equal(found[0], found[1]), "the same seed must give the same scores"
        same = torch.equal(found[0], found[2])
        assert same == self.deterministic, (
            "say deterministic = True in the suite if seeds are meant to make no difference"
        )

    def test_bytes_are_counted(self, tiny: fedrec.Split) -> None:
        method, trainer = self.make(), self.trainer(tiny)
        reports = [trainer.round(number) for number in range(2)]
        talks = isinstance(method, Arrows) and not method.silent
        assert (reports[0].bytes_up > 0) == talks
        assert (sum(report.bytes_down for report in reports) > 0) == talks

    def test_settings_reach_the_engine(self) -> None:
        method = self.make()
        assert method.negatives == getattr(method.config, "negatives", 0) or "negatives" in type(method).__dict__
        if isinstance(method, Arrows):
            assert method.participation == getattr(method.config, "participation", 1.0)

    def test_the_server_sees_what_the_type_says(self, tiny: fedrec.Split, monkeypatch: pytest.MonkeyPatch) -> None:
        method = self.make_arrows()
        assert isinstance(method, SumMethod) != isinstance(method, EachMethod)
        if not isinstance(method, SumMethod):
            return
        # Every client by itself: merging sums of any parts gives the sums of one pass over all.
        uploads: list[Upload] = []
        monkeypatch.setattr(type(method), "contribute", lambda self, task, upload, total: uploads.append(upload))
        simulation = Simulation(method, tiny.training, cohort_samples=1)
        simulation.round(0)
        monkeypatch.undo()
        whole, parts = Total(), [Total(), Total(), Total()]
        for number, upload in enumerate(uploads):
            for total in (whole, parts[number % 3]):
                method.contribute(simulation.task, upload, total)
        left = parts[0].merge(parts[1]).merge(parts[2])
        right = parts[0].merge(parts[1].merge(parts[2]))
        assert set(left) == set(right) == set(whole)
        for name, value in whole.items():
            room = 1e-5 * max(1.0, float(value.double().abs().max()))
            assert (left[name].double() - value.double()).abs().max() <= room
            assert (right[name].double() - value.double()).abs().max() <= room

    def test_one_object_runs_two_federations(self, tiny: fedrec.Split) -> None:
        method, everybody = self.make(), torch.arange(tiny.data.n_users)
        alone = self.make().trainer(tiny.training, Setup(seed=1))
        first = method.trainer(tiny.training, Setup(seed=1))
        other = method.trainer(tiny.training, Setup(seed=2))
        for number in range(2):
            alone.round(number)
            first.round(number)
            other.round(number)
        assert torch.equal(alone.scores(everybody), first.scores(everybody))

    def test_copies_are_the_same_method(self, tiny: fedrec.Split) -> None:
        method, everybody = self.make(), torch.arange(tiny.data.n_users)
        again = copy.deepcopy(method)
        assert type(again) is type(method)
        assert (again.config, again.name, again.rounds) == (method.config, method.name, method.rounds)
        found = []
        for each in (method, again):
            trainer = each.trainer(tiny.training, Setup())
            trainer.round(0)
            found.append(trainer.scores(everybody))
        assert torch.equal(*found)

    def test_arrows_keep_nothing_on_the_method(self, tiny: fedrec.Split, monkeypatch: pytest.MonkeyPatch) -> None:
        method = self.make()
        before = frozen(vars(method))

        def refuse(self: object, name: str, value: object) -> None:
            raise AssertionError(f"an arrow wrote self.{name}")

        monkeypatch.setattr(type(method), "__setattr__", refuse)
        trainer = method.trainer(tiny.training, Setup())
        for number in range(2):
            trainer.round(number)
        trainer.scores(torch.arange(3))
        trainer.diagnostics()
        for view in trainer.views:
            trainer.scores(torch.arange(3), view)
        trainer.client_groups()
        assert frozen(vars(method)) == before

    def test_partial_participation(self, tiny: fedrec.Split) -> None:
        if "participation" not in type(self.make().config).model_fields:
            pytest.skip("this method has no participation setting")
        trainer = self.trainer(tiny, participation=0.3)
        assert trainer.round(0).clients == 9
        trainer.round(1)
        assert bool(torch.isfinite(trainer.scores(torch.arange(tiny.data.n_users))).all())

    def test_private_uploads(self, tiny: fedrec.Split) -> None:
        method = self.make_arrows(**self.private_options)
        if method.privacy_problem() or method.silent:
            pytest.skip("nothing that a privacy stage could work on")
        everybody, found = torch.arange(tiny.data.n_users), []
        secret, repeated = Privacy(clip=1.0, scale=0.01), Privacy(clip=1.0, scale=0.01, reproducible=True)
        for privacy in (None, repeated, repeated, secret, secret):
            stage = None if privacy is None else PrivacyStage(privacy, 0)
            simulation = Simulation(method, tiny.training, Setup(privacy=stage))
            reports = [simulation.round(number) for number in range(2)]
            assert all(report.bytes_up > 0 for report in reports)
            found.append(simulation.scores(everybody))
            assert bool(torch.isfinite(found[-1]).all())
        plain, first, again, *others = found
        assert not torch.equal(plain, first)
        assert torch.equal(first, again)
        assert not torch.equal(others[0], first), "the noise must not follow from the seed"
        assert not torch.equal(*others)

    def test_no_client_moves_a_noised_sum_by_more_than_the_clipping_norm(self, tiny: fedrec.Split) -> None:
        method = self.make_arrows(**self.private_options)
        if method.central_problem() or method.sum_bounds() or not isinstance(method, SumMethod):
            pytest.skip("no noise on its sums, or bounds of its own")
        clip, everybody = 0.01, torch.arange(tiny.data.n_users)
        stage = CentralStage(CentralPrivacy(noise=0.0, clip=clip), 0)
        simulation, kept = Simulation(method, tiny.training, Setup(privacy=stage)), Kept()
        for number in range(2):  # who merges may send nothing at first
            simulation.clients.train(everybody, number, simulation.half, kept, RoundReport())
        assert kept.uploads
        for upload in kept.uploads:
            one = torch.ones(len(upload.clients), device=upload.weights.device)
            one[0] = 0
            parts = {name: emptied(part, one) for name, part in upload.parts.items()}
            whole, without = Total(), Total()
            method.contribute(simulation.task, upload, whole)
            method.contribute(simulation.task, replace(upload, parts=parts), without)
            moved = 0.0
            for name in whole:
                difference = whole[name].double() - without[name].double()
                if method.public_sum(name):
                    assert not bool(difference.any()), f"{name} depends on what clients send"
                else:
                    moved += float(difference.square().sum())
            assert moved**0.5 <= clip * (1 + 1e-3) + 1e-6

    def test_a_resumed_private_run_goes_on_with_its_secrets(self, tiny: fedrec.Split) -> None:
        method = self.make_arrows(**self.private_options)
        if method.privacy_problem() or method.silent:
            pytest.skip("nothing that a privacy stage could work on")
        privacy, everybody = Privacy(clip=1.0, scale=0.01), torch.arange(tiny.data.n_users)
        whole, second = (Simulation(method, tiny.training, Setup(privacy=PrivacyStage(privacy, 0))) for _ in range(2))
        whole.round(0)
        second.load_state({name: value.clone() for name, value in whole.state().items()})
        for number in (1, 2):
            whole.round(number)
            second.round(number)
        assert torch.equal(whole.scores(everybody), second.scores(everybody))

    def test_merging_with_full_weight_is_replacing(self, tiny: fedrec.Split) -> None:
        method = self.make_arrows()
        if not isinstance(method, TableMethod) or isinstance(method, MergedMethod):
            pytest.skip("no item table to merge")
        everybody, found = torch.arange(tiny.data.n_users), []
        for how in ({"merge": "replace"}, {"merge": "static", "rho": 1.0}):
            simulation = Simulation(merged(type(method))(**(self.options | how)), tiny.training)
            for number in range(2):
                simulation.round(number)
            found.append(simulation.scores(everybody))
        room = self.tolerance * max(1.0, float(found[0].abs().max()))
        assert (found[0] - found[1]).abs().max() <= room

    def test_unknown_users_are_refused(self, tiny: fedrec.Split) -> None:
        run = train(self.make(), tiny, rounds=1, device="cpu", progress=False)
        assert len(run.recommend(tiny.data.user_ids[3], 5)) == 5
        with pytest.raises(DataError, match="no user"):
            run.recommend("nobody")

    def test_recommendations_are_new_items(self, tiny: fedrec.Split) -> None:
        run = train(self.make(), tiny, rounds=1, device="cpu", progress=False)
        seen = {tiny.data.item_ids[i] for i in tiny.touched[7]}
        assert len(seen) > len(tiny.training.positives[7])
        everything = [item for item, _ in run.recommend(tiny.data.user_ids[7], tiny.data.n_items)]
        assert set(everything) == set(tiny.data.item_ids) - seen

    def test_save_and_load(self, tiny: fedrec.Split, tmp_path: Any) -> None:
        run = train(self.make(), tiny, rounds=2, device="cpu", progress=False)
        run.save(tmp_path)
        again, everybody = restore(self.make(), tmp_path, read_result(tmp_path)), torch.arange(tiny.data.n_users)
        assert torch.equal(again.trainer.scores(everybody), run.trainer.scores(everybody))
        assert again.split.hash == tiny.hash

    def test_training_lifts_it_above_the_floor(self, demo_split: fedrec.Split) -> None:
        trainer = self.trainer(demo_split)
        before = Evaluator(demo_split).evaluate(trainer.scores, "test", order=trainer.client_order)
        untrained = before["test"].means()["sampled"]["hr@10"]
        run = train(self.make(), demo_split, rounds=self.rounds, device="cpu", progress=False, evaluate_every=5)
        trained = run.test["sampled"]["hr@10"]
        if self.at_chance:
            assert trained == pytest.approx(CHANCE, abs=ROOM), "this method learns: give it a floor, not at_chance"
            return
        assert untrained <= self.floor - ROOM, f"untrained it has {untrained:.3f}: raise the floor, or rounds and rates"
        assert trained >= self.floor
