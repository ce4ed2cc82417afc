import copy
import json
import math

import pytest

import fedrec
from fedrec.errors import ConfigError
from fedrec.federation.result import FlatMetrics, Metrics, Result, finite, metric_title, result_schema
from fedrec.methods.fedem import FedEM
from fedrec.methods.fedmf import FedMF


@pytest.mark.parametrize("settings", [{}, {"merge": "static"}])
def test_copies_keep_what_was_set_beside_the_settings(settings):
    method = fedrec.create("fedmf", settings)
    method.rounds = 7
    assert copy.deepcopy(method).rounds == 7


@pytest.mark.parametrize(
    ("name", "settings", "sees"),
    [
        ("local", {}, "nothing"),
        ("fedem", {"agg": "mean"}, "sums only"),
        ("fedem", {"agg": "both"}, "every upload"),
        ("ease", {}, "all data"),
    ],
)
def test_a_result_says_what_the_server_saw(small, name, settings, sees):
    run = fedrec.train(fedrec.create(name, settings), small, rounds=1, device="cpu", progress=False)
    assert run.result.sees == sees


@pytest.mark.parametrize(
    ("method", "settings", "advice"),
    [
        ("fedmf", {"lr": 0.5}, "lower lr (now 0.5)"),
        ("fedmf", {"lr": 0.5, "merge": "elastic", "adapter_lr": 1e6}, "lower adapter_lr (now 1e+06)"),
        ("fedem", {"lr": 0.001}, "lower lr (now 0.001)"),
        ("fedrap", {"lr_args": 1e9, "l2": 0}, "lower lr_args (now 1e+09)"),
        ("hetefedrec", {"lr_own": 1e9}, "lower lr_own (now 1e+09)"),
        ("mf", {"lr": 3.0}, "lower lr (now 3)"),
        ("ease", {}, "check the settings"),
    ],
)
def test_after_divergence_the_rate_that_was_raised_is_the_one_to_lower(method, settings, advice):
    assert fedrec.create(method, settings).when_diverged == advice


@pytest.mark.parametrize(
    ("method", "settings", "label"),
    [
        ("fedem", {}, "fedem"),
        ("fedem", {"lr": 0.5}, "fedem"),
        ("fedem", {"variant": "code", "merge": "static"}, "fedem variant=code merge=static"),
        ("fedmf", {"merge": "static"}, "fedmf+static"),
    ],
)
def test_labels_tell_runs_of_a_method_apart(method, settings, label):
    assert fedrec.create(method, settings).label == label


def test_what_a_method_trains_with_is_what_its_settings_say():
    method = fedrec.create("fedmf", {"negatives": 7, "epochs": 3, "batch_size": 50})
    assert (method.negatives, method.schedule.epochs, method.schedule.batch_size) == (7, 3, 50)
    ease = fedrec.create("ease")
    assert (ease.negatives, ease.schedule, ease.merges) == (0, None, False)
    assert method.describe_config()["negatives"] == 7
    described = fedrec.create("hetefedrec", {"sizes": [2, 3, 4]}).describe_config()
    assert json.loads(json.dumps(described)) == described, "plain values, as a file has them"
    assert method.tables(None) == []


def test_a_method_is_made_from_settings_by_name_or_as_an_object():
    by_name, as_object = FedMF(lr=0.5), FedMF(FedMF.Config(lr=0.5))
    assert by_name.config == as_object.config
    assert FedMF().config == FedMF.Config()
    with pytest.raises(ConfigError, match=r"^unknown setting of fedmf 'learning_rate'"):
        FedMF(learning_rate=1)
    assert type(FedEM(agg="mean")) is not type(FedEM())
    assert type(FedEM(FedEM(agg="mean").config)) is type(FedEM(agg="mean"))


@pytest.mark.parametrize(
    ("name", "title"), [("hr@10", "HR@10"), ("ndcg@5", "NDCG@5"), ("recall@20", "Recall@20"), ("mrr@1", "Mrr@1")]
)
def test_metrics_are_headed_as_people_write_them(name, title):
    assert metric_title(name) == title


def test_numbers_nobody_has_are_null_in_a_result_and_come_back():
    metrics = Metrics(sampled={}, full={"hr@10": math.nan, "ndcg@10": 0.5})
    assert json.loads(metrics.model_dump_json()) == {"sampled": {}, "full": {"hr@10": None, "ndcg@10": 0.5}}
    again = Metrics.model_validate_json(metrics.model_dump_json())
    assert math.isnan(again.full["hr@10"])
    assert again.full["ndcg@10"] == 0.5
    flat = FlatMetrics(**{"hr@10": 0.25, "full": {"hr@10": 0.1}})
    assert flat["hr@10"] == 0.25


def test_the_schema_says_which_keys_there_always_are():
    schema = json.loads(result_schema())
    assert set(schema["required"]) == set(Result.model_fields)
    assert result_schema().startswith('{\n  "$defs": {\n    "')
    assert schema["properties"]["split_hash"] == {"title": "Split Hash", "type": "string"}


def test_what_json_cannot_say_becomes_null_however_deep_it_lies():
    given = {"a": [1.5, math.nan, (math.inf, "x")], "b": {"c": -math.inf, "d": None, "e": True, "f": 3}}
    expected = {"a": [1.5, None, [None, "x"]], "b": {"c": None, "d": None, "e": True, "f": 3}}
    assert finite(given) == expected
    assert json.loads(json.dumps(finite(given), allow_nan=False)) == expected


def test_a_table_says_when_a_model_knew_validation_items():
    labelled = Result.model_construct(label="fedmf", history_at_test="train")
    assert labelled.shown_label == "fedmf"
    assert (
        labelled.model_copy(update={"history_at_test": "train+validation"}).shown_label
        == "fedmf (knows validation items)"
    )


def test_settings_that_depend_on_protocol_and_data_are_left_alone_unless_a_method_has_some():
    options = {"lr": 0.5}
    assert FedMF.completed(options, "honest", "ml-100k") is options
    assert FedMF().cautions(100) == []
    assert (FedMF.folds_in, FedMF.explains) == (False, False)
