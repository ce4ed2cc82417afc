import json
import shutil

import numpy as np
import pytest

import fedrec
from fedrec.errors import ConfigError, DataError
from fedrec.evaluation import significance
from fedrec.federation.result import FlatMetrics
from fedrec.running.claim import read_claim
from fedrec.running.saved import read_per_client, read_result
from fedrec.running.saving import WITHOUT_MODEL, save_result
from fedrec.studies import comparing
from fedrec.studies.comparing import compare
from fedrec.studies.result import TestRecord
from fedrec.studies.runner import reproduce
from fedrec.studies.study import Row, parse
from fedrec.studies.table import sections

QUIET = {"progress": False, "data": "demo", "rounds": 3}
METHODS = ["popularity", "fedmf", "slow=fedmf"]
SETTINGS = {"slow": {"lr": 1e-6}}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("studies")
    return out, compare(METHODS, settings=SETTINGS, seeds=2, out=out, **QUIET)


def folders(out, result, label):
    row = next(row for row in result.rows if row.label == label)
    return [out / result.name / cell.folder for cell in row.cells]


def users(places, metric="ndcg@10"):
    return np.mean([read_per_client(place)["test"].full[metric] for place in places], axis=0)


def test_rows_are_the_means_of_ordinary_runs(done):
    out, result = done
    assert [row.label for row in result.rows] == ["popularity", "fedmf", "slow"]
    assert result.kind == "comparison"
    assert result.columns == ["HR@10", "NDCG@10", "full NDCG@10"]
    values = [read_result(place).test.full["ndcg@10"] for place in folders(out, result, "fedmf")]
    assert result.rows[1].values[2].per_seed == values
    assert read_result(folders(out, result, "slow")[0]).config["lr"] == 1e-6
    assert fedrec.compare is compare


def test_tests_are_those_of_the_significance_module_corrected_over_the_rows(done):
    out, result = done
    known = {label: users(folders(out, result, label)) for label in ("popularity", "fedmf", "slow")}
    reference = result.tests[0].reference
    expected = significance.compare(known, baseline=reference)
    assert [test.label for test in result.tests] == [one.first for one in expected]
    for test, one in zip(result.tests, expected, strict=True):
        for name in ("users", "difference", "low", "high", "bootstrap_p", "wilcoxon_p"):
            assert getattr(test, name) == getattr(one, name), name
        assert (test.bootstrap_holm, test.wilcoxon_holm) == (one.bootstrap_holm, one.wilcoxon_holm)
    smallest = min(result.tests, key=lambda test: test.wilcoxon_p)
    assert smallest.wilcoxon_holm == pytest.approx(min(1.0, 2 * smallest.wilcoxon_p))
    holm = sorted(result.tests, key=lambda test: test.bootstrap_p)
    assert holm[0].bootstrap_holm <= holm[1].bootstrap_holm


def test_a_reference_may_be_chosen_and_any_metric_tested(done):
    out, _ = done
    result = compare(
        METHODS, settings=SETTINGS, seeds=2, out=out, reference="popularity", metric="full recall@20", **QUIET
    )
    assert {test.reference for test in result.tests} == {"popularity"}
    assert result.columns[-1] == "full Recall@20"
    expected = users(folders(out, result, "slow"), "recall@20") - users(folders(out, result, "popularity"), "recall@20")
    assert result.tests[1].difference == pytest.approx(expected.mean())


def test_the_reference_may_be_named_as_its_method_was(done):
    out, _ = done
    result = compare(METHODS, settings=SETTINGS, seeds=2, out=out, reference="slow=fedmf", **QUIET)
    assert {test.reference for test in result.tests} == {"slow"}


def test_the_cells_are_those_of_studies(done):
    out, _ = done
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*") if path.name != "lock"}
    study = parse(
        'title = "T"\ndata = ["demo"]\nprotocols = ["honest"]\ncolumns = ["hr@10"]\nseeds = 2\nrounds = 3\n'
        '[[rows]]\nlabel = "MF"\nmethod = "fedmf"\n',
        "other",
    )
    found = reproduce(study, out=out, progress=False)
    assert found.missing == []
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*") if path.name != "lock"} == before


@pytest.mark.parametrize("best", ["first", "second"])
def test_the_reference_is_the_best_on_validation_whatever_test_says(done, tmp_path, best):
    """Two runs, copied, one of which claims a validation value no other reaches."""
    out, result = done
    for name, label in (("first", "popularity"), ("second", "slow")):
        shutil.copytree(folders(out, result, label)[0], tmp_path / name)
        known = read_result(tmp_path / name)
        value = 0.9 if name == best else 0.1
        full = known.validation.full | {"ndcg@10": value}
        changed = FlatMetrics.model_validate(known.validation.model_dump() | {"full": full})
        save_result(tmp_path / name, known.model_copy(update={"validation": changed}), WITHOUT_MODEL)
    names = [str(tmp_path / "first"), str(tmp_path / "second")]
    found = compare(names, seeds=1, out=tmp_path / "out", **QUIET)
    assert found.tests[0].reference == best
    assert {row.label for row in found.rows} == {"first", "second"}
    assert not (tmp_path / "out" / "cells").exists()


def test_a_test_of_fewer_seeds_says_of_which(done, tmp_path):
    """A folder has one seed; only that one is paired, with its users' values under the other method."""
    out, result = done
    assert [test.seeds for test in result.tests] == [[0, 1]] * 2
    assert "seeds" not in list(sections(result))[1].columns
    second = folders(out, result, "popularity")[1]
    found = compare(["fedmf", str(second)], seeds=2, out=out, reference="fedmf", **QUIET)
    assert [test.seeds for test in found.tests] == [[1]]
    ours, theirs = users([second]), users([folders(out, result, "fedmf")[1]])
    assert found.tests[0].difference == pytest.approx((ours - theirs).mean())
    table = list(sections(found))[1]
    assert (table.columns[-1], table.rows[0][-1]) == ("seeds", "1")
    before = found.tests[0].model_dump(exclude={"seeds"})
    assert TestRecord.model_validate(before).seeds == []


def test_runs_that_cannot_be_compared_are_refused(tmp_path, paper):
    fedrec.train("popularity", paper, rounds=1, out=tmp_path / "other", progress=False)
    seventh = fedrec.HONEST.split(fedrec.load("demo"), 7)
    fedrec.train("popularity", seventh, rounds=1, out=tmp_path / "seventh", progress=False)
    wrong = [
        (["fedmf"], {}, "two methods or more"),
        (["fedmf", "popularity"], {"settings": {"popularty": {}}}, "did you mean 'popularity'"),
        (["fedmf", "popularity"], {"reference": "fedem"}, "did you mean 'fedmf'"),
        (["fedmf", "populrity"], {}, "did you mean 'popularity'"),
        (["fedmf", "fedmf"], {}, "two rows are called 'fedmf'"),
        (["fedmf", str(tmp_path / "other")], {}, "is a run on demo under 'paper'"),
        (["fedmf", str(tmp_path / "seventh")], {}, "split of seed 7, and seeds 0 to 0 are compared; compare 8 seeds"),
        (["fedmf", "popularity"], {"data": "dem0"}, "did you mean 'demo'"),
        (
            ["popularity", "slow=fedmf"],
            {"metric": "full mrr", "settings": SETTINGS},
            "unknown full metric of 'honest' 'mrr'",
        ),
    ]
    for methods, options, words in wrong:
        with pytest.raises(ConfigError, match=words):
            compare(methods, seeds=1, out=tmp_path / "out", **QUIET | options)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_no_run_is_named_itself(paper, tmp_path, monkeypatch):
    """And not the run beside it, for being on other data or under another protocol."""
    fedrec.train("popularity", paper, rounds=1, out=tmp_path / "run", progress=False)
    (tmp_path / "begun").mkdir()
    nope, begun = tmp_path / "nope", tmp_path / "begun"
    for name, words in ((nope, "nope does"), (f"label={nope}", "nope does"), (begun, "begun holds no finished run")):
        with pytest.raises(ConfigError, match=words):
            compare([str(tmp_path / "run"), str(name)], seeds=1, out=tmp_path, **QUIET)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random").mkdir()
    result = compare(["popularity", "random", "a/b=random"], seeds=1, out=tmp_path, **QUIET)
    assert [row.label for row in result.rows] == ["popularity", "random", "a/b"], "methods, whatever folders are called"


def test_a_run_on_a_file_of_ones_own_stands_for_a_method(demo, tmp_path):
    rows = zip(demo.users.tolist(), demo.items.tolist(), demo.timestamps.tolist(), strict=True)
    file = tmp_path / "mine.csv"
    file.write_text("user,item,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    fedrec.train(
        "popularity", fedrec.HONEST.split(fedrec.read_csv(file), 0), source={"path": str(file)}, rounds=1,
        out=tmp_path / "run", progress=False,
    )  # fmt: skip
    result = compare(["random", str(tmp_path / "run")], seeds=1, out=tmp_path, **QUIET | {"data": str(file)})
    assert [(row.label, row.data) for row in result.rows] == [("random", str(file)), ("run", str(file))]
    assert len(result.tests) == 1


def test_where_no_test_can_be_made_the_table_is_kept(tmp_path, monkeypatch):
    def none(*rows):
        raise DataError("no split in common")

    monkeypatch.setattr(comparing, "paired_tests", none)
    with pytest.raises(DataError):
        compare(["popularity", "random"], seeds=1, out=tmp_path, **QUIET)
    assert "popularity" in (tmp_path / "compare-popularity-random" / "table.md").read_text()


def test_a_row_may_bring_privacy(tmp_path):
    quiet = Row(label="private", method="fedmf", privacy=fedrec.Privacy(clip=1.0, scale=1.0))
    result = compare(["popularity", quiet], seeds=1, out=tmp_path, **QUIET)
    assert result.rows[1].epsilon == pytest.approx(6.0, rel=0.2)
    assert json.loads((tmp_path / result.name / "study.json").read_text())["rows"][1]["privacy"]
    assert "| epsilon |" in (tmp_path / result.name / "table.md").read_text()


def test_result_tables_for_other_programs(done):
    _, result = done
    frame = result.to_pandas()
    assert list(frame["row"].unique()) == ["popularity", "fedmf", "slow"]
    assert result.to_arrow().num_rows == 9
    holm = {test.label: test.bootstrap_holm for test in result.tests}
    assert frame.loc[frame["row"] == "slow", "holm_p"].iloc[0] == holm["slow"]


def test_finished_runs_alone_are_compared_on_their_own_data_and_protocol(demo, tmp_path):
    """Also where choices of the protocol were changed; the reference may be named by its folder."""
    split = fedrec.preset("honest:min_interactions=12").split(demo, 0)
    for name in ("popularity", "random"):
        fedrec.train(name, split, rounds=1, out=tmp_path / name, progress=False)
    runs = [str(tmp_path / name) for name in ("popularity", "random")]
    result = compare(runs, seeds=1, out=tmp_path, reference=runs[1], progress=False)
    assert result.protocols == ["honest:min_interactions=12"]
    assert result.data == ["demo"]
    assert [(test.label, test.reference) for test in result.tests] == [("popularity", "random")]
    assert result.tests[0].users == split.data.n_users


def test_methods_run_under_a_protocol_with_choices(tmp_path):
    choice = "honest:history_at_test=train+validation,min_interactions=40"
    result = compare(["popularity", "slist"], seeds=1, out=tmp_path, **QUIET | {"protocol": choice, "device": "cpu"})
    told = [read_result(tmp_path / result.name / row.cells[0].folder) for row in result.rows]
    assert [found.history_at_test for found in told] == ["train", "train+validation"]  # the first cannot fold in
    assert {found.protocol_options for found in told} == {fedrec.preset(choice)}
    assert all(found.users < 500 for found in told)


def test_of_a_blend_every_round_is_evaluated_for_it_is_a_choice(tmp_path):
    """Of other methods every fifth one; whoever says how often is heard."""
    parts = {"parts": ["popularity", "random"], "steps": 2}
    rows = [Row(label="blend", method="blend", settings=parts), Row(label="mf", method="fedmf")]

    def evaluated(**options):
        result = compare(rows, seeds=1, out=tmp_path, **QUIET | options)
        return {label: read_claim(folders(tmp_path, result, label)[0]).evaluate_every for label in ("blend", "mf")}

    assert evaluated() == {"blend": 1, "mf": 5}
    assert evaluated(evaluate_every=2) == {"blend": 2, "mf": 2}
