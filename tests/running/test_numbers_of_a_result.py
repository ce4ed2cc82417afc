"""Every number of a result is what it says: counted again from the rounds, the split and the values of the clients."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedrec

QUIET = {"progress": False, "device": "cpu"}
ROUNDS, TAKING_PART = 8, 20


class Lines(fedrec.Listener):
    def __init__(self):
        self.lines = []

    def round(self, line):
        self.lines.append(line)


def train(split, rounds, told):
    method = fedrec.create("fedmf", lr=0.3, epochs=5, participation=0.5, dim=8)
    return fedrec.train(method, split, rounds=rounds, listeners=[told], **QUIET)


@pytest.fixture(scope="module")
def run(small):
    told = Lines()
    made = train(small, ROUNDS, told)
    assert made.result.selected_round < ROUNDS, "the last round must not be the best one"
    return made, told.lines


def test_bytes_and_clients_are_those_of_all_rounds(run, small):
    result, lines = run[0].result, run[1]
    visits = ROUNDS * TAKING_PART
    assert len(small.training.positives) == 2 * TAKING_PART
    up, down = (sum(line[f"bytes_{way}"] for line in lines) for way in ("up", "down"))
    assert (result.bytes.up_total, result.bytes.down_total) == (up, down)
    assert result.bytes.up_per_client_round == pytest.approx(up / visits)
    assert result.bytes.down_per_client_round == pytest.approx(down / visits)
    assert down == visits * small.data.n_items * 8 * 4, "a client downloads the table"
    assert up != down
    seconds = result.seconds.model_dump()
    work = sum(seconds[name] for name in ("sampling", "training", "aggregation"))
    assert result.seconds.per_round == pytest.approx(work / ROUNDS)
    assert result.clients_per_second == pytest.approx(visits / work)
    for line in lines:  # whose seconds are rounded
        assert line["clients_per_second"] == pytest.approx(TAKING_PART / sum(line["seconds"].values()), rel=0.2)


def test_groups_are_means_of_test_values_from_the_fewest_items_to_the_most(run, small):
    found, counts = run[0], small.training.positives.counts
    order = np.argsort(counts, kind="stable")
    assert counts[order[0]] < counts[order[-1]]
    values = found.per_client["test"].sampled["ndcg@10"]
    fifths = [values[part] for part in np.split(order, 5)]
    groups = found.result.groups["ndcg@10"]
    assert [(group.group, group.size) for group in groups] == [(k, 8) for k in range(1, 6)]
    assert [group.mean for group in groups] == pytest.approx([float(fifth.mean()) for fifth in fifths])
    assert not np.allclose([fifth.mean() for fifth in fifths], [fifth.mean() for fifth in fifths[::-1]])


def test_means_are_those_of_the_clients(run):
    found = run[0]
    for part, means in (("test", found.result.test), ("validation", found.result.validation)):
        values = found.per_client[part].full["ndcg@10"]
        assert means.full["ndcg@10"] == pytest.approx(float(np.nanmean(values)))


def test_all_but_what_is_final_is_of_the_selected_round(run, small):
    """A run of so many rounds only ends in the state that was selected."""
    found = run[0].result
    again = train(small, found.selected_round, Lines()).result
    assert again.selected_round == found.selected_round
    for key in ("validation", "test", "groups", "catalogue"):
        assert getattr(found, key) == getattr(again, key), key
    assert again.final.test == found.test
    assert found.final.test != found.test
    assert found.final.validation != found.validation


def test_the_catalogue_is_counted_in_lists_of_ten(run, small):
    found, shown = run[0], set()
    for client in range(small.data.n_users):
        scores = found.trainer.scores(torch.tensor([client]))[0]
        scores[torch.from_numpy(small.training.positives[client].astype(np.int64))] = -torch.inf
        shown |= set(scores.topk(10).indices.tolist())
    assert found.result.catalogue["coverage@10"] == pytest.approx(len(shown) / small.data.n_items)


@pytest.mark.parametrize(("later", "selected"), [(False, 1), (True, 3)])
def test_of_equal_rounds_the_first_counts_unless_the_protocol_wants_the_last(small, later, selected):
    split = fedrec.HONEST.with_options(min_interactions=5, candidates=20, select_later=later).split(small.data, seed=0)
    assert fedrec.train("popularity", split, rounds=3, **QUIET).result.selected_round == selected


def test_the_round_is_chosen_by_the_ranking_and_metric_of_the_protocol(small):
    chosen = {}
    for wanted in (("full", "ndcg@10"), ("sampled", "ndcg@10"), ("full", "hr@10")):
        ranking, metric = wanted
        protocol = small.protocol.with_options(select_ranking=ranking, select_metric=metric)
        told = Lines()
        chosen[wanted] = train(replace(small, protocol=protocol), 6, told).result.selected_round
        values = [line["validation"][ranking][metric] for line in told.lines]
        assert chosen[wanted] == 1 + int(np.argmax(values))
    assert chosen["full", "ndcg@10"] != chosen["sampled", "ndcg@10"], "else it does not matter which counts"
