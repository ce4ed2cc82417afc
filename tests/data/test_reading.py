import datetime
import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrec.data import from_frame, read_csv
from fedrec.errors import DataError

ROWS = [("b", 7, 3.0, 30), ("a", 5, 4.5, 10), ("b", 5, 0.0, 20)]


def assert_rows(data, user_ids=("b", "a")):
    assert data.users.tolist() == [0, 1, 0]
    assert data.items.tolist() == [0, 1, 1]
    assert data.user_ids == user_ids
    assert data.item_ids == (7, 5)
    assert data.ratings.tolist() == [3.0, 4.5, 0.0]
    assert data.timestamps.tolist() == [30, 10, 20]


def text(delimiter):
    header = [("user", "item", "rating", "timestamp")]
    return "".join(delimiter.join(str(value) for value in row) + "\n" for row in header + ROWS)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", " ", "::"])
@pytest.mark.parametrize("given", [True, False])
def test_delimiters_given_or_found(tmp_path, delimiter, given):
    path = tmp_path / "rows.csv"
    path.write_text(text(delimiter))
    data = read_csv(path, delimiter=delimiter if given else None)
    assert_rows(data)
    assert data.name == "rows"


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv"])
def test_gzip_is_known_by_its_content(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text(",").encode()))
    assert_rows(read_csv(path))


def test_without_header_columns_are_numbers(tmp_path):
    path = tmp_path / "ratings.dat"
    path.write_text("1::1193::5::978300760\n1::661::3::978302109\n2::1193::4::978298413\n")
    data = read_csv(path, 0, 1, 2, 3, header=False)
    assert data.user_ids == (1, 2)
    assert data.item_ids == (1193, 661)
    assert data.timestamps.tolist() == [978300760, 978302109, 978298413]
    assert read_csv(path, 0, 1, header=False).ratings is None


def test_other_names_byte_order_mark_windows_lines_blanks_and_quotes(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xef\xbb\xbfwho, what ,note\r\n"x, y",1,"two\r\nlines"\r\n\r\n  z ,2,"say ""hi"""\r\n\r\n')
    data = read_csv(path, user="who", item="what")
    assert data.user_ids == ("x, y", "z")
    assert data.item_ids == (1, 2)
    assert data.ratings is None
    assert data.timestamps is None


def test_rating_and_timestamp_can_be_ignored(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("user,item,rating,timestamp\na,b,not,read\n")
    data = read_csv(path, rating=None, timestamp=None)
    assert data.ratings is None
    assert data.timestamps is None


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        (["3", "-1", "0"], (3, -1, 0)),
        (["7", "007", "1"], ("7", "007", "1")),
        (["1", "x", "2"], ("1", "x", "2")),
        (["9223372036854775807", "1", "2"], (9223372036854775807, 1, 2)),
        (["9223372036854775808", "1", "2"], ("9223372036854775808", "1", "2")),
        (["123456789012345678901234567890", "1", "2"], ("123456789012345678901234567890", "1", "2")),
    ],
)
def test_ids_are_integers_only_if_all_are(tmp_path, values, ids):
    path = tmp_path / "rows.csv"
    path.write_text("user,item\n" + "".join(f"{value},1\n" for value in values))
    assert read_csv(path).user_ids == ids


def test_empty_columns_count_as_absent(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("user,item,rating,timestamp\n1,2,,\n1,3,,\n")
    data = read_csv(path)
    assert data.ratings is None
    assert data.timestamps is None


def test_timestamps_stay_exact_and_may_be_written_as_floats(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("user,item,timestamp\n1,2,9007199254740993\n1,3,-5\n")
    assert read_csv(path).timestamps.tolist() == [9007199254740993, -5]
    path.write_text("user,item,timestamp\n1,2,881250949.0\n1,3,1e3\n")
    assert read_csv(path).timestamps.tolist() == [881250949, 1000]
    path.write_text(
        "user,item,timestamp\n1,2,9007199254740993\n1,3,68800000881250949.0\n1,4,+7.\n1,5,9007199254740993e0\n"
    )
    assert read_csv(path).timestamps.tolist() == [9007199254740993, 68800000881250949, 7, 9007199254740993]
    frame = pa.table({"user": [1, 1], "item": [2, 3], "timestamp": [b"9007199254740993", b"2.0"]})
    assert from_frame(frame).timestamps.tolist() == [9007199254740993, 2]


def test_coding_across_many_parser_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("fedrec.data.text._BLOCK", 1 << 12)
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 300, 5000), rng.integers(0, 200, 5000)
    path = tmp_path / "rows.csv"
    path.write_text("user,item\n" + "".join(f"u{u},{i}\n" for u, i in zip(users, items, strict=True)))
    data = read_csv(path)
    assert data.user_ids == tuple(dict.fromkeys(f"u{u}" for u in users))
    assert data.item_ids == tuple(dict.fromkeys(items.tolist()))
    assert np.array_equal(np.array(data.item_ids)[data.items], items)
    assert [data.user_ids[code] for code in data.users] == [f"u{u}" for u in users]


def test_arrays_are_read_only(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text(","))
    with pytest.raises(ValueError, match="read-only"):
        read_csv(path).users[0] = 1


@pytest.mark.parametrize("codec", ["snappy", "gzip"])
def test_parquet(tmp_path, codec):
    path = tmp_path / "rows.parquet"
    frame = pd.DataFrame(ROWS, columns=["user", "item", "rating", "timestamp"])
    pq.write_table(pa.Table.from_pandas(frame), path, compression=codec)
    assert_rows(read_csv(path))
    with pytest.raises(DataError, match=r"rows\.parquet: unknown column 'usr'; did you mean 'user'\?"):
        read_csv(path, user="usr")


class OnlyCapsule:
    """An object that is nothing but the Arrow PyCapsule interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


COLUMNS = ["user", "item", "rating", "timestamp"]
PANDAS = pd.DataFrame(ROWS, columns=COLUMNS)
POLARS = pl.DataFrame(ROWS, schema=COLUMNS, orient="row")


@pytest.mark.parametrize(
    "frame",
    [
        PANDAS,
        PANDAS.astype({"user": "category", "item": "float64"}),
        PANDAS.assign(junk=[object(), 1, "x"]),
        POLARS,
        POLARS.with_columns(pl.col("user").cast(pl.Categorical)),
        POLARS.to_arrow(),
        POLARS.lazy(),
        POLARS.lazy().with_columns(junk=pl.col("item").map_elements(lambda _: 1 / 0, return_dtype=pl.Int64)),
        POLARS.to_arrow().to_batches()[0],
        OnlyCapsule(POLARS.to_arrow()),
        {name: list(column) for name, column in zip(COLUMNS, zip(*ROWS, strict=True), strict=True)},
    ],
    ids=[
        "pandas",
        "pandas-types",
        "pandas-junk",
        "polars",
        "polars-cat",
        "arrow",
        "lazy",
        "lazy-reads-no-other-column",
        "batch",
        "capsule",
        "dict",
    ],
)
def test_frames(frame):
    assert_rows(from_frame(frame))


def test_frame_with_other_names_and_dates():
    frame = pl.DataFrame(
        {
            "who": [1, 2],
            "what": ["x", "y"],
            "when": [datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 1)],
        }
    )
    data = from_frame(frame, "who", "what", timestamp="when", name="mine")
    assert data.timestamps[0] > data.timestamps[1]
    assert data.name == "mine"
    days = frame.with_columns(pl.col("when").cast(pl.Date))
    assert from_frame(days, "who", "what", timestamp="when").timestamps.tolist() == [1577923200, 1577836800]


def test_unsigned_ids_beyond_64_bits_are_text():
    frame = pl.DataFrame({"user": pl.Series([2**64 - 1, 1], dtype=pl.UInt64), "item": [1, 2]})
    assert from_frame(frame).user_ids == (str(2**64 - 1), "1")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (PANDAS.assign(user=["a", None, "b"]), "frame, row 2, column 'user': the user id is empty; fill"),
        (PANDAS.assign(item=[1.0, np.nan, 2.0]), "frame, row 2, column 'item': the item id is empty; fill"),
        (PANDAS.assign(rating=[1.0, 2.0, np.nan]), "frame, row 3, column 'rating': the rating is empty"),
        (
            POLARS.with_columns(rating=pl.lit(float("nan"))),
            "row 1, column 'rating': nan is not a finite number",
        ),
        (POLARS.with_columns(rating=pl.lit("x")), "row 1, column 'rating': 'x' is not a number"),
        (POLARS.with_columns(timestamp=pl.lit(0.5)), "row 1, column 'timestamp': 0.5 is not a whole number"),
        (PANDAS.assign(timestamp=["5", None, "6"]), "frame, row 2, column 'timestamp': the timestamp is empty"),
        (POLARS.with_columns(user=pl.lit([[1]])), "> cannot be an id; use text or whole"),
        (POLARS.clear(), "frame: the table has no rows."),
        (
            POLARS.drop("item"),
            "frame: no item column is recognised among user, rating, timestamp; name it (item='NAME')",
        ),
        (PANDAS.set_axis(["user", "item", "item", "t"], axis=1), "columns 2, 3 are all called 'item'"),
        (42, "frame: this is not a table that Arrow can hold"),
    ],
)
@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_frames_that_are_refused(frame, message):
    with pytest.raises(DataError) as error:
        from_frame(frame)
    assert message in str(error.value)
