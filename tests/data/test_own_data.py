"""Own data as they come: names of columns, times, packing, encodings, several files, rows that are left out, titles."""

import bz2
import gzip
import io
import lzma
import re
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedrec
from fedrec.data.columns import Wanted, usual
from fedrec.errors import DataError

SHOP = "customerID;SKU;Order-Date\nanna;k1;2024-01-31\nbert;k2;2024-02-01\nanna;k2;2024-01-30\n"


@pytest.fixture
def written(tmp_path):
    def write(content, name="shop.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_usual_names_are_taken_and_told(written):
    path = written(SHOP)
    data = fedrec.read(path)
    assert data.user_ids == ("anna", "bert")
    assert data.item_ids == ("k1", "k2")
    assert data.timestamps.tolist() == [1706659200, 1706745600, 1706572800]
    assert data.notes == (f"{path}: columns: user 'customerID', item 'SKU', time 'Order-Date'.",)


@pytest.mark.parametrize("name", ["user_id", "userId", "UserID", "customer", "user_id:token", "User Id"])
def test_spellings(name):
    assert usual("user", ["x", name]) == 1


def test_the_better_name_wins_and_what_is_asked_for_beats_both(written):
    path = written("title,movie,movie_id,user_id\nA,B,7,1\n")
    assert fedrec.read(path).item_ids == (7,)
    assert fedrec.read(path, item="title").item_ids == ("A",)


def test_names_that_are_the_roles_own_are_not_told(written):
    assert fedrec.read(written("user,item\n1,2\n")).notes == ()


@pytest.mark.parametrize(
    ("written_times", "numbers"),
    [
        (("2024-01-31T12:30:00Z", "2024-01-31 12:30:01"), [1706704200, 1706704201]),
        (("2024-01-31T13:30:00+01:00", "2024-01-31"), [1706704200, 1706659200]),
        (("2024-01-31T12:30:00.5Z", "2024-01-31T12:30:00"), [1706704200500000, 1706704200000000]),
        (("2024/01/31 12:30", "2024-01-31 12:30 UTC"), [1706704200, 1706704200]),
        (("1706704200", "1706704201"), [1706704200, 1706704201]),
        (("1706704200123", "1706704200124"), [1706704200123, 1706704200124]),
    ],
)
def test_times(written, written_times, numbers):
    path = written("user,item,time\n" + "".join(f"1,{k},{value}\n" for k, value in enumerate(written_times)))
    assert fedrec.read(path).timestamps.tolist() == numbers


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])
def test_dates_as_text_in_frames(kind):
    rows = {"user": ["a", "b"], "item": ["x", "y"], "date": ["2024-01-31 12:30", "2024-01-31"]}
    assert fedrec.read(kind(rows)).timestamps.tolist() == [1706704200, 1706659200]


def test_files_that_hold_the_same_in_other_types(tmp_path):
    time = pa.array([1500], pa.timestamp("ms"))
    whole = pa.table({"user": [12345678901234, 7], "item": [1, 2], "date": pa.array([1, 2], pa.timestamp("us"))})
    gaps = pa.table({"user": [12345678901234.0], "item": [3], "date": time.cast(pa.timestamp("ms", "UTC"))})
    pq.write_table(whole, tmp_path / "1.parquet")
    pq.write_table(gaps, tmp_path / "2.parquet")
    data = fedrec.read(tmp_path / "*.parquet")
    assert data.user_ids == (12345678901234, 7)
    assert data.timestamps.tolist() == [1, 2, 1_500_000]


@pytest.mark.parametrize("wrong", ["31.01.2024", "2024-02-31", "1706704200", "2024-01-31T25:00"])
@pytest.mark.parametrize("before", [1, 2, 9])
def test_a_date_that_is_none_is_refused_with_its_line(written, wrong, before):
    path = written("user,item,time\n" + "1,2,2024-01-31\n" * before + f"1,3,{wrong}\n" + "1,2,2024-01-31\n" * 3)
    with pytest.raises(
        DataError,
        match=rf"line {before + 2}, .*'{re.escape(wrong)}' is not .*ISO date such as 2024-01-31.*\(timestamp=None\)",
    ):
        fedrec.read(path)


@pytest.mark.parametrize(
    ("rows", "rating", "time"),
    [
        ("7,8,5,978300760\n7,9,3,978302109\n", [5, 3], [978300760, 978302109]),
        ("7,8,978300760\n7,9,978302109\n", None, [978300760, 978302109]),
        ("7,8,2024-01-31,4\n7,9,2024-01-30,1\n", [4, 1], [1706659200, 1706572800]),
        ("7,8,5\n7,9,3\n", [5, 3], None),
        ("7,8\n7,9\n", None, None),
    ],
)
def test_without_a_header(written, rows, rating, time):
    data = fedrec.read(written(rows))
    assert data.item_ids == (8, 9)
    assert (None if data.ratings is None else data.ratings.tolist()) == rating
    assert (None if data.timestamps is None else data.timestamps.tolist()) == time
    assert "no header; columns, counted from 0: user 0, item 1" in data.notes[0]


def test_a_first_line_of_words_may_be_said_to_be_a_row(written):
    path = written("anna,k1\nbert,k2\n")
    with pytest.raises(DataError, match=r"no user column is recognised among anna, k1.*\(header=False\)"):
        fedrec.read(path)
    assert fedrec.read(path, header=False).user_ids == ("anna", "bert")


def test_a_file_may_be_read_by_position_in_spite_of_its_header(written):
    assert fedrec.read(written("a,b\nx,y\n"), 0, 1).user_ids == ("x",)


def zipped(data):
    path = io.BytesIO()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside.csv", data)
    return path.getvalue()


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, bz2.compress, lzma.compress, zipped, lambda data: pa.compress(data, "zstd", asbytes=True)],
    ids=["gzip", "bzip2", "xz", "zip", "zstd"],
)
def test_packed_files(written, pack, monkeypatch):
    path = written(pack(SHOP.encode()), "shop.packed")
    assert fedrec.read(path).user_ids == ("anna", "bert")
    monkeypatch.setattr("fedrec.data.unpacking.most_bytes", lambda: 20)
    with pytest.raises(DataError, match="unpacks to more than"):
        fedrec.read(path)


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, zipped], ids=["bzip2", "xz", "zip"])
def test_packed_files_that_are_damaged(written, pack):
    with pytest.raises(DataError, match=r"damaged|cut short"):
        fedrec.read(written(pack(SHOP.encode() * 9)[:-30]))


def test_encodings(written):
    text = "user,item\nzoë,1\n"
    path = written(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"line 2, column 1: not UTF-8 text; .*\(encoding='latin-1'\)"):
        fedrec.read(path)
    assert fedrec.read(path, encoding="latin-1").user_ids == ("zoë",)
    assert fedrec.read(written(text.encode("utf-16"))).user_ids == ("zoë",)
    with pytest.raises(DataError, match="there is no encoding 'klingon'"):
        fedrec.read(path, encoding="klingon")


def test_several_files(written, tmp_path):
    written(SHOP, "day1.csv")
    second = written("sku,customer_id,date\nk3,carl,2024-02-02\n", "day2.csv")
    data = fedrec.read(tmp_path / "day*.csv")
    assert len(data) == 4
    assert data.user_ids == ("anna", "bert", "carl")
    assert data.timestamps[3] == 1706832000
    assert fedrec.read([tmp_path / "day1.csv", second]).item_ids == ("k1", "k2", "k3")
    second.write_text("sku,customer_id,date\nk3,carl,2024-02-02\nk3,,2024-02-02\n")
    with pytest.raises(DataError, match=r"day2\.csv, line 3, column 'customer_id': the user id is empty"):
        fedrec.read(tmp_path / "day*.csv")
    with pytest.raises(DataError, match="there is no file of such a name"):
        fedrec.read(tmp_path / "month*.csv")
    second.write_text("sku,customer_id\nk3,carl\n")
    with pytest.raises(
        DataError, match=r"day2\.csv: its columns are item, user, those of .*day1\.csv item, timestamp, user"
    ):
        fedrec.read(tmp_path / "day*.csv")


EVENTS = "user,item,event,price,rating\n1,a,view,1.5,1\n1,b,buy,20,5\n,b,buy,30,5\n2,a,cart,10,x\n2,a,view,2,2\n2,a,view,2,4\n"


def test_rows_that_are_left_out_are_counted(written):
    path = written(EVENTS)
    data = fedrec.read(path, where=["event=buy,cart", "price>=10"], drop_empty=True, rating=None)
    assert [(data.user_ids[u], data.item_ids[i]) for u, i in zip(data.users, data.items, strict=True)] == [
        (1, "b"),
        (2, "a"),
    ]
    assert data.notes == (
        f"{path}: 3 of 6 rows are not event=buy,cart and were left out.",
        f"{path}: 1 of 3 rows have an empty user or item and were left out.",
    )
    data = fedrec.read(path, where="event!=cart", min_rating=4, drop_empty=True)
    assert data.ratings.tolist() == [5, 4]
    data = fedrec.read(path, rating=None, drop_empty=True, min_count=2)
    assert (len(data), data.user_ids, data.item_ids) == (3, (2,), ("a",))
    assert "2 of 5 rows are of a user and an item that meet less than 2 times" in data.notes[-1]


def test_a_row_is_named_by_its_line_whatever_was_left_out_before(written):
    path = written("user,item,event,time\n1,a,view,5\n1,b,buy,6\n1,c,buy,soon\n")
    with pytest.raises(DataError, match=r"line 4, column 'time': 'soon'"):
        fedrec.read(path, where="event=buy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"line 4, column 'user': the user id is empty; .*drop_empty=True"),
        ({"drop_empty": True, "min_rating": 2}, r"line 5, column 'rating': 'x' is not a number; .*rating=None"),
        ({"where": "event"}, "'event' is no condition on rows; write column=value"),
        ({"where": "evnt=buy"}, "unknown column 'evnt'; did you mean 'event'"),
        ({"where": "event=sale"}, "no row is left, all others are not event=sale"),
        ({"where": "event>3"}, "'event>3' compares what are not all numbers"),
        ({"rating": None, "min_rating": 3}, r"there are no ratings to be 3 or more; .*rating='NAME'"),
        ({"rating": None, "drop_empty": True, "min_count": 9}, "no user has an item in 9 rows"),
    ],
)
def test_refusals_name_the_option_that_helps(written, options, message):
    with pytest.raises(DataError, match=message):
        fedrec.read(written(EVENTS), **options)


def test_frames_of_numbers_without_names():
    rows = [[1, 10, 978300760], [2, 11, 978300761]]
    data = fedrec.read(pd.DataFrame(rows))
    assert data.timestamps.tolist() == [978300760, 978300761]
    lazy = pl.LazyFrame({"userId": [1, None], "itemId": [2, 3], "score": [4.0, 5.0]})
    data = fedrec.read(lazy, drop_empty=True)
    assert (data.user_ids, data.ratings.tolist()) == ((1,), [4.0])


def test_names_decide_whether_there_is_a_header():
    assert Wanted().header_of(["user_id", "7"], None)
    assert Wanted().header_of(["x", "y"], None)
    assert not Wanted().header_of(["x", "2024-01-31"], None)
    assert Wanted(user="x").header_of(["x", "7"], None)


ITEMS = 'id,title,genre\nk1,Kettle,kitchen\nk2,"Lamp, small",light\nk9,Unsold,none\n'


def test_titles(written):
    data = fedrec.read(written(SHOP), items=written(ITEMS, "items.csv"))
    assert data.title("k2") == "Lamp, small"
    assert data.title("nothing") is None
    assert data.about.more("k1") == {"genre": "kitchen"}
    kept = fedrec.data.filter_interactions(data, min_per_user=2)
    assert kept.title("k1") == "Kettle"


def test_titles_of_movielens_tables(written):
    path = written("1|Toy Story (1995)|x\n2|Café (1996)|y\n".encode("latin-1"), "u.item")
    table = fedrec.data.read_items(path)
    assert (table.title(1), table.title("2")) == ("Toy Story (1995)", "Café (1996)")
    path = written("1::Toy Story (1995)::Animation\n", "movies.dat")
    assert fedrec.data.read_items(path).title(1) == "Toy Story (1995)"
    table = fedrec.data.read_items(
        written("item_id:token\tmovie_title:token_seq\tclass:token_seq\n5\tHeat\tAction\n", "ml.item")
    )
    assert table.title(5) == "Heat"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("id,title\n", "there is no item with an id and a title"),
        ("id,price\nk1,3\n", "no title column is recognised among id, price"),
        ("id\nk1\n", "there is one column only"),
        ("id,title\nx1,Kettle\n", r"none of the items of shop is in it; the data has ids such as 'k1', the table 'x1'"),
    ],
)
def test_tables_of_items_that_are_refused(written, items, message):
    with pytest.raises(DataError, match=message):
        fedrec.read(written(SHOP), items=written(items, "items.csv"))


def test_incomplete_titles_are_told(written):
    data = fedrec.read(written(SHOP), items=written("sku,name\nk1,Kettle\n", "items.csv"))
    assert "1 of 2 items have a title" in data.notes[-1]
    assert np.array_equal(data.users, fedrec.read(written(SHOP)).users)
