import torch

from fedrec.methods.fedfast.clustering import cluster_means, kmeans, random_starts


def blobs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    centres = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    return centres[labels] + 0.3 * torch.randn(90, 2, generator=generator), labels


def test_separate_groups_are_found() -> None:
    points, truth = blobs()
    starts = random_starts(points, 3, 10, torch.zeros(1, dtype=torch.int64))
    labels, centroids = kmeans(points, starts, 10)
    same = truth[:, None] == truth
    assert torch.equal(labels[:, None] == labels, same)
    assert torch.allclose(centroids, cluster_means(points, labels, 3), atol=1e-5)


def test_starts_are_different_points_and_depend_on_the_key() -> None:
    points = torch.arange(30.0)[:, None]
    starts = random_starts(points, 30, 4, torch.zeros(1, dtype=torch.int64))
    assert all(len(torch.unique(start)) == 30 for start in starts)
    assert not torch.equal(starts[0], starts[1])
    assert not torch.equal(starts, random_starts(points, 30, 4, torch.ones(1, dtype=torch.int64)))


def test_the_best_restart_wins() -> None:
    points, _ = blobs()
    bad = torch.tensor([[0.0, 0.0], [100.0, 0.0], [200.0, 0.0]])
    good = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    labels, _ = kmeans(points, torch.stack([bad, good, bad]), 5)
    assert torch.bincount(labels, minlength=3).tolist() == [30, 30, 30]


def test_an_empty_cluster_keeps_its_centroid() -> None:
    points, _ = blobs()
    starts = torch.tensor([[[0.0, 0.0], [100.0, 100.0]]])
    labels, centroids = kmeans(points, starts, 5)
    assert not labels.any()
    assert torch.equal(centroids[1], starts[0, 1])


def test_more_iterations_never_hurt() -> None:
    points, _ = blobs()
    starts = random_starts(points, 5, 1, torch.zeros(1, dtype=torch.int64))

    def spread(iterations: int) -> float:
        labels, centroids = kmeans(points, starts, iterations)
        return float((points - centroids[labels]).square().sum())

    values = [spread(n) for n in range(6)]
    assert values == sorted(values, reverse=True)


def test_means_of_clusters_without_members_are_zero() -> None:
    means = cluster_means(torch.tensor([[1.0], [3.0]]), torch.tensor([2, 2]), 4)
    assert means[:, 0].tolist() == [0.0, 0.0, 2.0, 0.0]
