"""Files of one's own are read alike by every command, and refusals name the flag that helps."""

import json

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from command_line import refused, run

ROWS = [
    (u, f"p{(u * 7 + k * 3) % 150}", f"2024-{1 + k % 12:02d}-{1 + u % 28:02d}T10:00:00")
    for u in range(30)
    for k in range(12)
]


@pytest.fixture
def shop(tmp_path):
    """A CSV of ISO dates, one without a header, one Parquet file, a table of items; the same rows in all."""
    lines = "".join(f"{u},{i},{t}\n" for u, i, t in ROWS)
    (tmp_path / "dated.csv").write_text("user_id,item_id,date\n" + lines)
    (tmp_path / "bare.csv").write_text(lines)
    pq.write_table(pacsv.read_csv(tmp_path / "dated.csv"), tmp_path / "table.parquet")
    (tmp_path / "items.csv").write_text("sku,name\n" + "".join(f"p{k},Product {k}\n" for k in range(150)))
    return tmp_path


def stats(capsys, *words):
    code, out, err = run(capsys, "data", "stats", *words, "--json")
    assert code == 0, err
    return json.loads(out)["raw"], err


def test_the_same_rows_are_the_same_data_whatever_the_file(capsys, shop):
    found = {name: stats(capsys, shop / name) for name in ("dated.csv", "bare.csv", "table.parquet")}
    assert len({json.dumps(one) for one, _ in found.values()}) == 1
    assert found["dated.csv"][0]["has_timestamps"]
    assert "user 'user_id', item 'item_id', time 'date'" in found["dated.csv"][1]
    assert "no header" in found["bare.csv"][1]


@pytest.mark.parametrize("name", ["dated.csv", "bare.csv", "table.parquet"])
def test_train_and_recommend(capsys, shop, name):
    data = ("--data", shop / name, "--items", shop / "items.csv", "--out", shop / "run")
    code, _, err = run(capsys, "train", "popularity", *data, "--quiet")
    assert code == 0, err
    (shop / name).unlink()
    (shop / "items.csv").unlink()
    code, out, err = run(capsys, "recommend", shop / "run", "--user", "3", "-k", "2")
    assert code == 0, err
    assert "Product " in out
    found = json.loads(run(capsys, "recommend", shop / "run", "--user", "3", "-k", "2", "--json")[1])["items"]
    assert found[0]["title"] == f"Product {found[0]['item'][1:]}"


def test_a_configuration_written_beside_a_run_repeats_how_files_were_read(capsys, shop):
    words = ("--data", shop / "dated.csv", "--data", shop / "dated.csv", "--where", "item_id!=p3", "--min-count", "2")
    assert (
        run(capsys, "train", "popularity", *words, "--out", shop / "run", "--quiet", "--items", shop / "items.csv")[0]
        == 0
    )
    code, _, err = run(capsys, "train", "--config", shop / "run" / "config.toml", "--out", shop / "again", "--quiet")
    assert code == 0, err
    first, again = (json.loads((shop / name / "result.json").read_text()) for name in ("run", "again"))
    assert first["split_hash"] == again["split_hash"]
    assert first["source"] == again["source"]


def test_audit_and_several_files(capsys, shop):
    audit = ("audit", "--protocol", "honest", "--rounds", "1", "--json", "--data")
    code, out, err = run(capsys, *audit, shop / "dat*.csv")
    assert code == 0, err
    assert json.loads(out)["protocols"]["honest"]["filtered"]["given"]["rows"] == len(ROWS)
    both = stats(capsys, shop / "dated.csv", shop / "dated.csv")[0]
    assert both["rows"] == 2 * len(ROWS)


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        (
            "a,b\nx,y\n",
            (),
            "name it (--user-column NAME), or say that the first line is a row, if it is one (--no-header)",
        ),
        ("user,item\n,y\n", (), "leave such rows out (--drop-empty)."),
        ("user,item,date\n1,2,soon\n", (), "read no such column (--time-column none)."),
        ("user,item,score\n1,2,good\n", (), "read no such column (--rating-column none)."),
        ("user,item\n1,2\n", ("--min-rating", "3"), "name their column (--rating-column NAME)."),
        ("user^item\n1^2\n", (), "say what parts them, if there are two (--delimiter ^)."),
    ],
)
def test_refusals_name_the_flag(capsys, tmp_path, content, words, hint):
    path = tmp_path / "mine.csv"
    path.write_text(content)
    assert hint in refused(capsys, "data", "stats", path, *words)


def test_what_is_read_is_counted_where_nobody_has_enough_rows(capsys, tmp_path):
    path = tmp_path / "small.csv"
    path.write_text("user,item\na,x\na,y\nb,x\n")
    code, out, err = run(capsys, "data", "stats", path, "--format", "csv")
    assert code == 0
    assert out.splitlines()[:4] == [",raw,users with >= 10 rows", "users,2,-", "items,2,-", "rows,3,-"]
    assert "no row is left after filtering: kept 0 of 2 users" in err
    assert "relax the filter (--min-interactions N)." in err
    code, out, err = run(capsys, "data", "stats", path, "--json")
    found = json.loads(out)
    assert (code, found["rows"], found["raw"]["users"], found["filtered"]) == (0, 3, 2, None)
    assert found["reason"] in err
    assert "reason" not in json.loads(run(capsys, "data", "stats", path, "--json", "--min-interactions", "1")[1])


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("train", "popularity"), "relax the filter (--protocol-set min_interactions=N)."),
        (("tune", "fedmf", "--trials", "1"), "relax the filter (--protocol NAME:min_interactions=N)."),
    ],
)
def test_where_nobody_has_enough_rows_the_choice_of_the_protocol_is_named(capsys, tmp_path, command, hint):
    path = tmp_path / "small.csv"
    path.write_text("user,item\na,x\na,y\nb,x\n")
    *_, last = run(capsys, *command, "--data", path)[2].splitlines()
    assert last.startswith("error: ")
    assert last.endswith(hint)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("train", "popularity"), "(--protocol-set candidates=18)."),
        (("tune", "fedmf", "--trials", "1"), "(--protocol NAME:candidates=18)."),
    ],
)
def test_where_items_are_few_the_number_of_candidates_is_named(capsys, tmp_path, command, hint):
    path = tmp_path / "few.csv"
    path.write_text("user,item\n" + "".join(f"{u},{(u + k) % 30}\n" for u in range(30) for k in range(12)))
    *_, last = run(capsys, *command, "--data", path)[2].splitlines()
    assert "18 of 30 items left that it never touched; ask for 18 or less" in last
    assert last.endswith(hint)


def test_options_of_files_are_not_for_data_sets_by_name(capsys, shop):
    assert "--where is for files of your own" in refused(capsys, "data", "stats", "demo", "--where", "a=b")
    assert "'demo' is no file" in refused(capsys, "data", "stats", "demo", str(shop / "dated.csv"))


def test_recommendations_of_all_users_in_a_file_and_of_somebody_new(capsys, shop):
    folder, recs = shop / "run", shop / "recs.csv"
    words = ("--data", shop / "dated.csv", "--items", shop / "items.csv", "--out", folder, "--quiet")
    assert run(capsys, "train", "fedslist", *words)[0] == 0
    code, _, err = run(capsys, "recommend", folder, "--all", "--out", recs, "-k", "3", "--titles")
    assert code == 0, err
    assert "90 rows for 30 users" in err
    lines = recs.read_text().replace('"', "").splitlines()
    assert (lines[0], len(lines)) == ("user,rank,item,score,title", 91)
    (shop / "who.csv").write_text("user_id\n7\n3\n")
    (shop / "these.txt").write_text("p1\np2\np3\n")
    few = ("--users", shop / "who.csv", "--only", shop / "these.txt", "--without", "p2", "--out", shop / "few.parquet")
    assert run(capsys, "recommend", folder, *few)[0] == 0
    rows = pq.read_table(shop / "few.parquet").to_pylist()
    assert {row["user"] for row in rows} == {3, 7}
    assert {row["item"] for row in rows} <= {"p1", "p3"}
    code, out, err = run(capsys, "recommend", folder, "--history", "p1,p4", "--explain")
    assert code == 0, err
    assert "somebody with this history" in out
    assert "Product " in out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((), "nobody cannot be recommended to; give one of --user"),
        (("--user", "3", "--history", "p1"), "--user and --history cannot be"),
        (("--all",), "give --out FILE"),
        (("--user", "3", "--out", "x.csv"), "--out is for lists of many users"),
        (("--all", "--out", "x.txt"), "end the name with one of these"),
        (("--users", "nowhere", "--out", "x.csv"), "there is no such file of users"),
        (("--all", "--titles", "--out", "x.csv"), "no titles of items; train with --items FILE"),
        (("--history", "p1,nothing"), "no item 'nothing'"),
    ],
)
def test_what_recommend_refuses(capsys, small_run, words, hint):
    assert hint in refused(capsys, "recommend", small_run, *words)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    import fedrec

    folder = tmp_path_factory.mktemp("run")
    frame = {"user": [u for u, _, _ in ROWS], "item": [i for _, i, _ in ROWS]}
    fedrec.Recommender("popularity").fit(frame).save(folder)
    return folder


def test_a_final_model_is_exported_and_used_without_the_data(capsys, shop, tmp_path_factory):
    data = ("--data", shop / "dated.csv", "--quiet")
    assert (
        run(capsys, "train", "fedmf", *data, "--rounds", "9", "--out", shop / "run", "--items", shop / "items.csv")[0]
        == 0
    )
    chosen = json.loads((shop / "run" / "result.json").read_text())["selected_round"]
    code, _, err = run(capsys, "train", "--config", shop / "run" / "config.toml", "--final", "--out", shop / "final")
    assert code == 0, err
    final = json.loads((shop / "final" / "result.json").read_text())
    assert (final["rounds"], final["protocol"]) == (chosen, "whole")
    assert chosen < 9  # or it would not be seen whose number of rounds it is
    assert set(final["test"]["full"].values()) == {None}
    assert f"{chosen} rounds, which" in err
    away = tmp_path_factory.mktemp("away")
    assert run(capsys, "export", shop / "final", "-o", away / "model", "--clients", away / "clients")[0] == 0
    assert len(list((away / "clients").iterdir())) == 30
    for path in ("dated.csv", "items.csv"):
        (shop / path).unlink()
    code, out, err = run(capsys, "recommend", away / "model", "--history", "p1,p4", "-k", "3", "--json")
    assert code == 0, err
    assert len(json.loads(out)["items"]) == 3
    assert "Product " in json.loads(out)["items"][0]["title"]
    assert "holds nothing of any user" in refused(capsys, "recommend", away / "model", "--user", "3")
