"""The service: what it answers, what it refuses, what it counts, and that it keeps nothing."""

import asyncio
import json
from dataclasses import replace
from functools import partial

import pytest

import fedrec
from command_line import refused
from fedrec.cli.serve import is_loopback
from fedrec.data import ItemTable
from fedrec.data.reading import with_items
from fedrec.serving.export import export, export_clients
from fedrec.serving.guard import Rates
from fedrec.serving.model import load_model

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi", reason="FastAPI is not installed")
TOKEN = "a token that is long enough"


@pytest.fixture(scope="module")
def models(small, tmp_path_factory):
    titles = ItemTable({str(k): f"{'Green' if k % 2 else 'Red'} thing {k}" for k in range(60)})
    titled, place, found = replace(small, data=with_items(small.data, titles)), tmp_path_factory.mktemp("m"), {}
    for name, rounds in (("fedslist", 1), ("fedmf", 5)):
        run = fedrec.train(name, titled, rounds=rounds, progress=False)
        digest = export(run, place / name)
        export_clients(run, place / f"{name}-clients", digest)
        found[name] = load_model(place / name, clients=place / f"{name}-clients")
    return found | {"folder": place}


def asked(model, *requests, host="localhost", **options):
    """Answers to requests (method, path, options of httpx), one after the other."""
    from fedrec.serving.service import service

    app = service(model, **options)

    async def all_of_them():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}:8000") as client:
            return [await client.request(method, path, **more) for method, path, more in requests]

    return asyncio.run(all_of_them())


def post(model, path, body, **options):
    return asked(model, ("POST", path, {"json": body}), **options)[0]


@pytest.mark.parametrize("name", ["fedslist", "fedmf"])
def test_recommendations_for_a_history_and_for_a_known_user(models, name):
    model = models[name]
    new, known = asked(
        model,
        ("POST", "/api/recommend", {"json": {"history": [3, "9"], "k": 4}}),
        ("GET", "/api/users/7/recommendations?k=4", {}),
    )
    assert new.status_code == known.status_code == 200
    assert [one["item"] for one in new.json()["items"]] == [item for item, _ in model.recommend(history=[3, 9], k=4)]
    assert [one["item"] for one in known.json()["items"]] == [item for item, _ in model.recommend(7, k=4)]
    assert all(one["title"].endswith(f"thing {one['item']}") for one in new.json()["items"])


def test_reasons_and_popularity(models):
    body = {"history": [3, 9, 14], "k": 5, "explain": True, "without": [4]}
    items = post(models["fedslist"], "/api/recommend", body).json()["items"]
    assert {reason["item"] for one in items for reason in one["because"]} <= {3, 9, 14}
    assert items[0]["because"][0]["title"]
    assert 4 not in {one["item"] for one in items}
    tame = post(models["fedslist"], "/api/recommend", body | {"most_popular": 0.2}).json()["items"]
    assert max(one["popularity"] for one in tame) <= 0.2
    assert max(one["popularity"] for one in items) > 0.2
    why = post(models["fedslist"], "/api/explain", {"history": [3, 9], "items": [5]}).json()["items"]
    assert [one["item"] for one in why] == [5]
    assert post(models["fedmf"], "/api/explain", {"history": [3], "items": [5]}).status_code == 422


def test_search_and_similar_items(models):
    found, all_, similar, about = asked(
        models["fedslist"],
        ("GET", "/api/items?q=gReEn thing 1", {}),
        ("GET", "/api/items?limit=3", {}),
        ("GET", "/api/items/3/similar?k=2", {}),
        ("GET", "/api/model", {}),
    )
    assert {one["title"] for one in found.json()["items"]} == {
        "Green thing 1",
        *(f"Green thing {k}" for k in range(11, 20, 2)),
    }
    shares = [one["popularity"] for one in all_.json()["items"]]
    assert shares == sorted(shares, reverse=True)
    assert [one["item"] for one in similar.json()["items"]] == [item for item, _ in models["fedslist"].similar(3, 2)]
    facts = about.json()
    assert (facts["method"], facts["at_once"], facts["explains"], facts["known_users"]) == (
        "fedslist",
        True,
        True,
        True,
    )
    assert facts["crossed"]["up_per_round"] > 0


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/api/recommend", {"history": ["nothing"]}, 404, "has no item 'nothing'"),
        ("/api/recommend", {"history": [1], "k": 0}, 422, "greater than or equal to 1"),
        ("/api/recommend", {"history": [1], "k": 101}, 422, "less than or equal to 100"),
        ("/api/recommend", {"history": list(range(1001))}, 422, "at most 1000 items"),
        ("/api/recommend", {"history": [{"a": 1}]}, 422, "valid"),
        ("/api/recommend", {"history": ["x" * 201]}, 422, "at most 200 characters"),
        ("/api/recommend", {"histori": []}, 422, "Extra inputs"),
        ("/api/recommend", {"history": [1], "without": ["nothing"]}, 404, "has no item 'nothing'"),
        ("/api/explain", {"history": [1], "items": []}, 422, "at least 1 item"),
        ("/api/nothing", {}, 404, "Not Found"),
    ],
)
def test_what_is_refused(models, path, body, status, words):
    answer = post(models["fedslist"], path, body)
    assert answer.status_code == status
    assert words in answer.text


@pytest.mark.parametrize(
    "body",
    [
        '{"history": [], "most_popular": NaN}',
        '{"history": [NaN]}',
        '{"history": [], "k": 1e999}',
        '{"history": [], "x\\ud800": 1}',
        '{"history": ["\\ud800"]}',
    ],
)
def test_what_json_or_text_cannot_hold_is_refused_as_well(models, body):
    sent = {"content": body, "headers": {"content-type": "application/json"}}
    answer = asked(models["fedslist"], ("POST", "/api/recommend", sent))[0]
    assert answer.status_code == 422
    assert answer.json()["detail"]


def test_what_is_refused_does_not_come_back(models):
    assert "secret" not in post(models["fedslist"], "/api/recommend", {"history": ["secret"] * 1001}).text


def test_unknown_users(models):
    assert asked(models["fedslist"], ("GET", "/api/users/99/recommendations", {}))[0].status_code == 404
    for odd in ("..%2f..%2fmodel.json", "%2e%2e", "a" * 400):
        assert asked(models["fedslist"], ("GET", f"/api/users/{odd}/recommendations", {}))[0].status_code == 404


def test_requests_that_are_too_large(models):
    taken = []

    async def drip():
        for number in range(40):
            taken.append(number)
            yield b"[" * 1000

    whole, dripped, wrong = asked(
        models["fedslist"],
        ("POST", "/api/recommend", {"content": b"[" * 40_000}),
        ("POST", "/api/recommend", {"content": drip()}),
        ("POST", "/api/recommend", {"content": b"{}", "headers": {"content-length": "many"}}),
        most_bytes=20_000,
    )
    assert [one.status_code for one in (whole, dripped, wrong)] == [413, 413, 413]
    assert len(taken) < 30  # what is beyond the limit is not even taken


def test_a_token_is_needed_for_all_that_tells_of_the_model(models):
    header = {"headers": {"authorization": f"Bearer {TOKEN}"}}
    paths = ("/api/model", "/api/items", "/api/items/3/similar", "/api/users/7/recommendations", "/metrics")
    asks = [("GET", path, more) for path in paths for more in ({}, {"headers": {"authorization": "Bearer no"}}, header)]
    answers = asked(models["fedslist"], *asks, token=TOKEN, host="recs.example")
    assert [one.status_code for one in answers] == [401, 401, 200] * len(paths)
    for one in asked(models["fedslist"], ("GET", "/", {}), ("GET", "/api/health", {}), token=TOKEN):
        assert one.status_code == 200


def test_without_a_token_only_local_names_are_answered(models):
    for host, status in (("localhost", 200), ("127.0.0.1", 200), ("[::1]", 200), ("rebound.example", 421)):
        assert asked(models["fedslist"], ("GET", "/api/model", {}), host=host)[0].status_code == status


def test_rates():
    now = [0.0]
    rates = Rates(2.0, burst=3, clock=lambda: now[0])
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]
    assert rates.take("b")
    now[0] = 0.5
    assert [rates.take("a") for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [rates.take("a") for _ in range(4)] == [True, True, True, False]
    assert all(Rates(0).take("a") for _ in range(1000))


def test_many_requests_are_told_to_wait(models, monkeypatch):
    """All at one moment, however long they take."""
    monkeypatch.setattr("fedrec.serving.service.Rates", partial(Rates, clock=lambda: 0.0))
    answers = asked(models["fedslist"], *[("GET", "/api/health", {})] * 12, rate=5)
    assert [one.status_code for one in answers] == [200] * 10 + [429] * 2
    assert answers[-1].headers["retry-after"] == "1"


def test_metrics_count_and_hold_no_ids(models):
    history = {"json": {"history": [57, 58], "k": 2}}
    answers = asked(
        models["fedslist"],
        ("POST", "/api/recommend", history),
        ("GET", "/api/users/39/recommendations", {}),
        ("GET", "/wp-admin/39", {}),
        ("GET", "/metrics", {}),
    )
    text = answers[-1].text
    assert 'fedrec_requests_total{route="/api/recommend",status="200"} 1' in text
    assert 'fedrec_requests_total{route="/api/users/{user}/recommendations",status="200"} 1' in text
    assert 'fedrec_requests_total{route="other",status="404"} 1' in text
    assert "fedrec_request_seconds_count 3" in text
    assert "39" not in text.replace("_seconds_sum", "").split("fedrec_request_seconds")[0]


def test_pages_and_interface_are_complete(models):
    page, script, style, docs, api = asked(
        models["fedslist"], *[("GET", path, {}) for path in ("/", "/page.js", "/page.css", "/docs", "/openapi.json")]
    )
    assert all(one.status_code == 200 for one in (page, script, style, docs))
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for text in (page.text, script.text, style.text, docs.text):
        assert "http://" not in text.replace("http://www.w3.org", "")
        assert "https://" not in text
    paths = json.loads(api.text)["paths"]
    assert {"/api/recommend", "/api/explain", "/api/items/{item}/similar", "/api/health", "/metrics"} <= paths.keys()


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("x", False),
    ],
)
def test_what_is_this_machine_alone(host, local):
    assert is_loopback(host) == local


def test_serve_refuses_to_be_open_to_others_without_a_token(capsys, models, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDREC_TOKEN", raising=False)
    folder = models["folder"] / "fedslist"
    assert "give --token-file FILE, or FEDREC_TOKEN" in refused(capsys, "serve", folder, "--host", "0.0.0.0")
    (tmp_path / "token").write_text("short\n")
    assert "16 characters at least" in refused(capsys, "serve", folder, "--token-file", tmp_path / "token")
    assert "holds no exported model" in refused(capsys, "serve", tmp_path)
