import numpy as np
import pytest
import torch

import fedrec
from command_line import run
from fedrec.errors import ConfigError
from fedrec.evaluation import Evaluator
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.methods.blend import Blend
from fedrec.methods.blend.trainer import z_scores
from fedrec.testing import few

EVERYBODY = torch.arange(60)
TWO = ({"method": "popularity"}, {"method": "ease", "settings": {"lam": 30}})


@pytest.fixture(scope="module")
def split():
    return few(0, 60)


def alone(name, split, **settings):
    trainer = create(name, **settings).trainer(split.training, Setup())
    trainer.round(0)
    return trainer.scores(EVERYBODY)


@pytest.fixture(scope="module")
def blended(split):
    return fedrec.train(Blend(parts=TWO, steps=4), split, device="cpu", progress=False)


def test_scores_are_weighted_sums_of_what_parts_say_on_one_scale(split):
    trainer = Blend(parts=TWO, weights=(0.25, 2)).trainer(split.training, Setup())
    trainer.round(0)
    parts = [alone("popularity", split).double(), alone("ease", split, lam=30, delta_q=None).double()]
    expected = sum(
        weight * (x - x.mean(1, keepdim=True)) / x.std(1, unbiased=False, keepdim=True)
        for weight, x in zip((0.25, 2), parts, strict=True)
    )
    assert torch.allclose(trainer.scores(EVERYBODY).double(), expected, atol=1e-5)
    assert z_scores(torch.ones(2, 5)).tolist() == [[0.0] * 5] * 2


def test_weights_are_those_that_are_best_on_validation(split):
    values, turned = {}, TWO[::-1]
    for share in (0, 0.25, 0.5, 0.75, 1):
        run = fedrec.train(Blend(parts=turned, weights=(share, 1 - share)), split, device="cpu", progress=False)
        values[share, 1 - share] = run.result.validation.full["ndcg@10"]
    found = fedrec.train(Blend(parts=turned, steps=4), split, device="cpu", progress=False).result
    assert found.rounds == 5
    assert found.selected_round > 1
    assert found.validation.full["ndcg@10"] == max(values.values()) == values[tuple(found.diagnostics["weights"])]
    assert max(values.values()) > min(values.values())


def test_three_parts_are_tried_in_all_mixtures():
    found = Blend(parts=("popularity", "random", "fedgram"), steps=3).config.candidates()
    assert len(set(found)) == len(found) == 10
    assert all(sum(weights) == pytest.approx(1) for weights in found)


def test_what_the_server_sees_is_the_most_it_sees_of_a_part():
    assert Blend(parts=("popularity", "fedgram")).sees == "sums only"
    assert Blend(parts=("popularity", "ease")).sees == "all data"


def test_it_is_saved_with_its_parts_and_recommends_and_explains(split, blended, tmp_path):
    blended.save(tmp_path / "blend")
    again = fedrec.load_run(tmp_path / "blend")
    assert torch.equal(again.trainer.scores(EVERYBODY), blended.trainer.scores(EVERYBODY))
    user = split.data.user_ids[7]
    found = again.recommend(user, 5)
    why = again.explain(user, *(item for item, _ in found))
    for (item, score), one in zip(found, why, strict=True):
        assert one.item == item
        assert set(one.parts) == {"popularity", "ease"}
        assert sum(one.parts.values()) == pytest.approx(score, abs=1e-5)
        assert one.describe()["rest"] == pytest.approx(0, abs=1e-6)


def test_what_parts_add_stands_under_a_heading_of_its_own(blended, tmp_path, capsys):
    blended.save(tmp_path / "blend")
    words = ("recommend", tmp_path / "blend", "--user", blended.split.data.user_ids[7], "-k", "2", "--explain")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert out.splitlines()[1].split() == ["item", "parts", "rank", "score"]
    assert "popularity (" in out


def test_runs_are_taken_as_they_are_and_only_those_of_the_same_split(split, tmp_path):
    for name, data in (("ease", split), ("fedgram", split), ("popularity", few(60, 60))):
        fedrec.train(name, data, rounds=1, out=tmp_path / name, progress=False, device="cpu")
    folders = [str(tmp_path / name) for name in ("ease", "fedgram", "popularity")]
    method = create("blend", parts=folders[:2], weights=(1, 0))
    run = fedrec.train(method, split, device="cpu", progress=False)
    ease = fedrec.load_run(folders[0]).trainer.scores(EVERYBODY)
    assert torch.allclose(run.trainer.scores(EVERYBODY), z_scores(ease), atol=1e-6)
    assert run.result.bytes.up_total == 0
    with pytest.raises(ConfigError, match="other training items"):
        fedrec.train(create("blend", parts=[folders[0], folders[2]]), split, device="cpu", progress=False)


def test_parts_trained_together_cost_what_they_cost(split, blended):
    assert blended.result.bytes.up_total == fedrec.train("popularity", split, progress=False).result.bytes.up_total
    assert blended.result.label == "blend(popularity + ease)"


def test_a_resumed_blend_does_not_train_its_parts_again(split, blended):
    method = Blend(parts=TWO, steps=4)
    first, second = (method.trainer(split.training, Setup()) for _ in range(2))
    first.round(0)
    second.load_state({name: value.clone() for name, value in first.state().items()})
    assert second.round(1).bytes_up == 0
    first.round(1)
    assert torch.equal(first.scores(EVERYBODY), second.scores(EVERYBODY))


def test_only_parts_that_can_fold_items_in_change(split):
    trainer = Blend(parts=TWO, weights=(0.5, 0.5)).trainer(split.training, Setup())
    trainer.round(0)
    later = torch.tensor(np.array([split.validation.items[u][:1] for u in range(60)]), dtype=torch.int64)
    before, after = trainer.added(EVERYBODY, torch.arange(20)), trainer.scores(EVERYBODY, later=later)
    assert trainer.folds_in
    popular = 0.5 * z_scores(alone("popularity", split))
    rest = after - popular
    assert not torch.allclose(rest[:, :20], before["ease"], atol=1e-3)
    evaluator = Evaluator(split)
    assert evaluator.evaluate(trainer.scores, "test", folded=trainer.scores)["test"].means()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": ["popularity"]}, "two parts"),
        ({"parts": ["popularity", "ease"], "weights": [1]}, "one each"),
        ({"parts": ["popularity", "eese"]}, "ease"),
        ({"parts": ["popularity", "random", "ease", "fedgram"], "steps": 1000}, "lower steps"),
    ],
)
def test_mistakes_are_one_sentence(options, words):
    with pytest.raises(ConfigError, match=words):
        create("blend", **options)
