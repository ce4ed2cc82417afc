"""What figures show, against the files of the runs."""

import json
import shutil

import numpy as np
import pytest
import torch

from fedrec.api import load_run
from fedrec.errors import DataError
from fedrec.federation.mixture import Mixture
from fedrec.report.figures import figures
from fedrec.report.figures.item_tables import plane
from fedrec.report.sources import read_sections
from fedrec.running.saved import read_per_client, read_result


def drawn(*paths, **options):
    (section,) = read_sections(paths)
    return {figure.key: figure for figure in figures(section, **options)}


def series(figure, name, panel=0):
    (found,) = [one for one in figure.panels[panel].series if one.name == name]
    return found


def log(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_convergence_is_what_was_logged(runs):
    found = series(drawn(runs["mf"], runs["mf-1"])["convergence"], "fedmf")
    each = [
        [line["validation"]["full"]["ndcg@10"] for line in log(runs[name]) if "validation" in line]
        for name in ("mf", "mf-1")
    ]
    assert found.x == (2, 4)
    assert found.y == pytest.approx(np.mean(each, 0), rel=1e-5)
    assert found.low == pytest.approx(np.min(each, 0), rel=1e-5)
    assert found.high == pytest.approx(np.max(each, 0), rel=1e-5)


def test_convergence_shows_test_only_where_the_protocol_selects_on_it(runs):
    figure = drawn(runs["mf"], runs["alone"])["convergence"]
    assert [panel.y.title for panel in figure.panels] == ["validation full NDCG@10", "test HR@10"]
    found = series(figure, "local", panel=1)
    assert found.y == pytest.approx(
        [line["test"]["sampled"]["hr@10"] for line in log(runs["alone"]) if "test" in line], rel=1e-5
    )


def test_groups_are_those_of_the_result(runs):
    found = series(drawn(runs["popular"])["groups"], "popularity")
    assert found.x == ("1 fewest", "2", "3", "4", "5 most")
    assert found.y == pytest.approx([group.mean for group in read_result(runs["popular"]).groups["ndcg@10"]], rel=1e-5)


def test_the_distribution_is_the_share_of_clients_that_reach_a_value(runs):
    found = series(drawn(runs["mf"], runs["mf-1"])["clients"], "fedmf")
    values = np.concatenate([read_per_client(runs[name])["test"].sampled["ndcg@10"] for name in ("mf", "mf-1")])
    for x, y in zip(found.x, found.y, strict=True):
        assert y == pytest.approx(np.mean(values >= x - 1e-4), rel=1e-5)
    assert found.y[0] == 1


@pytest.mark.parametrize(("place", "rho"), list(enumerate((0.0, 0.5, 1.0))))
def test_static_merging_takes_its_share_of_every_row(runs, place, rho):
    figure = drawn(runs[f"merged-{place}"])["merging"]
    (found,) = figure.panels[0].series
    assert len(found.x) == 10
    assert found.y == pytest.approx([rho] * 10)
    assert found.low == pytest.approx(found.y)
    assert found.high == pytest.approx(found.y)


def test_merging_weights_are_means_over_items_of_like_popularity(runs):
    (found,) = drawn(runs["adapted"])["merging"].panels[0].series
    run = load_run(runs["adapted"])
    clients = np.arange(run.split.data.n_users)
    share = np.zeros((len(clients), run.split.data.n_items))
    for who, mixture in run.trainer.mixtures(torch.from_numpy(clients)):
        share[who.numpy()] = mixture.share.numpy()
    popular = np.bincount(run.split.training.positives.values, minlength=run.split.data.n_items)
    order = np.argsort(popular, kind="stable")
    parts = np.array_split(order, 10)
    assert found.y == pytest.approx([share[:, part].mean() for part in parts], abs=0.003)
    assert found.low == pytest.approx([np.quantile(share[:, part], 0.25) for part in parts], abs=0.006)
    assert found.high == pytest.approx([np.quantile(share[:, part], 0.75) for part in parts], abs=0.006)
    assert np.std(share) > 0


def test_only_merging_methods_have_merging_weights_and_models_can_be_left_alone(runs):
    assert "merging" not in drawn(runs["mf"])
    assert "merging" not in drawn(runs["adapted"], models=False)


def test_bytes_are_points_and_what_sends_nothing_is_a_level(runs):
    panel = drawn(runs["mf"], runs["popular"], runs["alone"])["bytes"].panels[0]
    bytes_ = read_result(runs["mf"]).bytes
    point = next(one for one in panel.series if one.name == "fedmf")
    assert point.kind == "point"
    assert point.x[0] == pytest.approx((bytes_.up_per_client_round + bytes_.down_per_client_round) / 1e3, rel=1e-5)
    assert point.y[0] == pytest.approx(read_result(runs["mf"]).test.sampled["hr@10"], rel=1e-5)


def test_epsilon_is_drawn_where_there_is_one(runs):
    assert "epsilon" not in drawn(runs["mf"], runs["popular"])
    panel = drawn(runs["mf"], runs["noisy"])["epsilon"].panels[0]
    kinds = {one.name: one.kind for one in panel.series}
    assert kinds == {"fedmf": "level", "fedmf, laplace noise 1": "point"}
    point = next(one for one in panel.series if one.kind == "point")
    assert point.x[0] == pytest.approx(read_result(runs["noisy"]).privacy.epsilon_total, rel=1e-5)


def test_a_sweep_is_a_line_over_its_setting(study, runs):
    found = drawn(study, models=False)
    line = series(found["sweep-1"], "Merged")
    assert line.x == (0.0, 0.5, 1.0)
    assert line.y == pytest.approx([read_result(runs[f"merged-{n}"]).test.sampled["hr@10"] for n in range(3)], rel=1e-5)
    assert series(found["sweep-1"], "MF").kind == "level"
    groups = found["sweep-groups"].panels[0]
    assert [one.name for one in groups.series] == ["1 fewest", "2", "3", "4", "5 most"]
    for n in range(3):
        means = [group.mean for group in read_result(runs[f"merged-{n}"]).groups["ndcg@10"]]
        assert [one.y[n] for one in groups.series] == pytest.approx(means, rel=1e-5)


def test_bars_stand_beside_what_was_published_and_leaks_are_marked(study):
    figure = drawn(study, models=False)["table-1"]
    honest, paper = figure.panels
    ours, published = honest.series
    assert published.y == (0.5, None, None, None)
    assert ours.marked == ()
    assert ours.low[1] is None
    assert ours.low[0] < ours.y[0] < ours.high[0]
    assert paper.series[0].marked == (True,)


def test_item_tables_are_laid_out_for_studies_that_kept_models_or_a_user(study, runs):
    pytest.importorskip("sklearn")
    figure = next(figure for key, figure in drawn(study).items() if key.startswith("tables-"))
    assert [panel.title for panel in figure.panels] == ["own", "from the server", "merged"]
    assert not any(key.startswith("tables-") for key in drawn(runs["adapted"]))
    split = load_run(runs["adapted"]).split
    sizes = [len(set(split.training.positives[client])) for client in range(40)]
    client = next(n for n in range(1, 39) if sizes[n] not in (sizes[n - 1], sizes[n + 1]))
    marked = drawn(runs["adapted"], user=str(split.data.user_ids[client]))["tables-1"].panels[0].series[1]
    assert len(marked.x) == sizes[client]
    for name in ("nobody", "²"):
        with pytest.raises(DataError, match=f"has no user '{name}'"):
            drawn(runs["adapted"], user=name)


def test_the_plane_is_the_same_each_time():
    pytest.importorskip("sklearn")
    table = np.random.default_rng(0).normal(size=(30, 4))
    assert np.array_equal(plane(table), plane(table))
    assert not plane(np.zeros((30, 4))).any()


def test_every_figure_says_in_words_what_it_shows(study, runs):
    for figure in drawn(study).values():
        assert figure.about.endswith(".")
        assert all(len(panel.words) > 20 for panel in figure.panels)


def test_clients_without_a_table_of_the_servers_are_left_out(small, tmp_path):
    import fedrec

    method = fedrec.create("fedem", dim=4, merge="static", rho=0.25, agg_ratio=0.2, agg="mean")
    run = fedrec.train(method, small, out=tmp_path / "few", rounds=3, progress=False)
    shares = torch.cat([mixture.share for _, mixture in run.trainer.mixtures(torch.arange(40))])
    assert 0 < (shares > 0).any(1).sum() < 40
    (found,) = drawn(tmp_path / "few")["merging"].panels[0].series
    assert found.y == pytest.approx([0.25] * 10)


def test_seeds_are_averaged_over_rounds_that_all_evaluated(runs, tmp_path):
    copy = shutil.copytree(runs["mf-1"], tmp_path / "run")
    lines = log(copy)
    del lines[-1]["validation"]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    copies = shutil.copytree(runs["mf-1"], tmp_path / "third")
    assert "convergence" not in drawn(runs["mf"], copy)  # one common round is no line
    assert series(drawn(runs["mf"], copies)["convergence"], "fedmf").x == (2, 4)


def test_tenths_go_from_the_rarest_item_to_the_most_popular(runs, monkeypatch):
    """Clients whose share of an item is its popularity draw a rising line."""
    run = load_run(runs["adapted"])
    popular = np.bincount(run.split.training.positives.values, minlength=run.split.data.n_items)
    share = torch.from_numpy(popular / popular.max()).float().expand(40, -1)
    table = torch.zeros(40, run.split.data.n_items, 1)
    monkeypatch.setattr(run.trainer, "mixtures", lambda clients: iter([(clients, Mixture(table, table, share))]))
    monkeypatch.setattr("fedrec.report.figures.merging.load_run", lambda folder: run)
    (found,) = drawn(runs["adapted"])["merging"].panels[0].series
    assert list(found.y) == sorted(found.y)
    assert found.y[0] < found.y[-1]
    assert found.y[-1] == pytest.approx(np.sort(popular)[-6:].mean() / popular.max(), abs=0.01)
