import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrec.data import read_csv
from fedrec.errors import DataError

HEAD = b"user,item,rating,timestamp\n"
GOOD = b"1,2,3,4\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": the file is empty."),
        (b"\n \n", ": the file is empty."),
        (HEAD, ": there is a header but no row below it."),
        (
            HEAD + GOOD + b"1,2,x,4\n",
            ", line 3, column 'rating': 'x' is not a number; mend it, or read no such column (rating=None).",
        ),
        (
            HEAD + b"\n\n" + GOOD + b"1,2,x,4\n",
            ", line 5, column 'rating': 'x' is not a number; mend it, or read no such column (rating=None).",
        ),
        (
            HEAD + b"1,2,0x10,4\n",
            ", line 2, column 'rating': '0x10' is not a number; mend it, or read no such column (rating=None).",
        ),
        (HEAD + GOOD + b"1,2,nan,4\n", ", line 3, column 'rating': 'nan' is not a finite number."),
        (HEAD + GOOD + b"1,2,-inf,4\n", ", line 3, column 'rating': '-inf' is not a finite number."),
        (HEAD + GOOD + b"1,2,1e999,4\n", ", line 3, column 'rating': '1e999' is not a finite number."),
        (HEAD + GOOD + b"1,2,-1,4\n", ", line 3, column 'rating': '-1' is negative; use 0 or more."),
        (
            HEAD + b"1,2,,4\n" + GOOD,
            ", line 2, column 'rating': the rating is empty; fill it in everywhere or",
        ),
        (
            HEAD + GOOD + b"1,2,3,noon\n",
            ", line 3, column 'timestamp': 'noon' is not a number or an ISO date such as 2024-01-31",
        ),
        (HEAD + GOOD + b"1,2,3,inf\n", ", line 3, column 'timestamp': 'inf' is not a finite number."),
        (HEAD + GOOD + b"1,2,3,0x10\n", ", line 3, column 'timestamp': '0x10' is not a number or an ISO date"),
        (HEAD + GOOD + b"1,2,3,4.5\n", ", line 3, column 'timestamp': '4.5' is not a whole number"),
        (
            HEAD + GOOD + b"1,2,3,9223372036854775808\n",
            ", line 3, column 'timestamp': '9223372036854775808' is",
        ),
        (HEAD + GOOD + b"1,2,3,1e-400\n", ", line 3, column 'timestamp': '1e-400' is not a whole number"),
        (
            HEAD + GOOD + b"1,2,3,1e-9999999999999999999\n",
            ", line 3, column 'timestamp': '1e-9999999999999999999' is not a",
        ),
        (
            HEAD + GOOD + b"1,2,3,9007199254740993.5\n",
            ", line 3, column 'timestamp': '9007199254740993.5' is not a whole",
        ),
        (
            HEAD + GOOD + b"1,2,3,\n",
            ", line 3, column 'timestamp': the timestamp is empty; fill it in everywhere",
        ),
        (
            HEAD + GOOD + b",2,3,4\n",
            ", line 3, column 'user': the user id is empty; fill it in, or leave such rows out (drop_empty=True).",
        ),
        (
            HEAD + GOOD + b"1,  ,3,4\n",
            ", line 3, column 'item': the item id is empty; fill it in, or leave such rows out (drop_empty=True).",
        ),
        (
            HEAD + GOOD + b"1,2,3\n" + GOOD,
            ", line 3: 3 columns where the first line has 4; mend or remove it.",
        ),
        (HEAD + b"\n" + GOOD + b"1,2,3,4,5\n", ", line 4: 5 columns where the first line has 4; mend or"),
        (b"user,item,user\n1,2,3\n", ", line 1: columns 1, 3 are all called 'user'; rename all but one."),
        (b"user\n1\n", ", line 1: there is one column only; a user and an item column are needed; say"),
        (
            b"usr,item\n1,2\n",
            ", line 1: no user column is recognised among usr, item; name it (user='NAME'), or say that",
        ),
        (
            b"a,b\n1,2\n",
            ", line 1: no user column is recognised among a, b; name it (user='NAME'), or say that the first line",
        ),
        (
            HEAD + GOOD + b"1,\xff,3,4\n",
            ", line 3, column 2: not UTF-8 text; save the file in that encoding, or say which one it has (encoding='latin-1').",
        ),
        (HEAD + b'1,"2,3,4\n' + GOOD, ", line 2: a quote is not closed"),
        (HEAD + b'1,"2\n7",3,4\n', ", line 2, column 'item': the item id has a line break"),
        (
            HEAD + GOOD + b"1,2," + b"x" * 5000 + b",4\n",
            f", line 3, column 'rating': '{'x' * 79}... (5,002 characters) is not a number;",
        ),
        (b'item,"us\nxr"\n1,2\n', ", line 1: no user column is recognised among item, us xr;"),
        (
            HEAD + b'1,"' + b"a" * 200_000 + b'\n",3,4\n',
            ", line 2: a quote is not closed, or a value is longer than 131,072 characters.",
        ),
        (b"PAR1 and nothing more", ": the Parquet file is damaged"),
    ],
)
def test_bad_text(tmp_path, content, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_csv(path)
    assert str(error.value).startswith(f"{path}{message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ";"}, ", line 1: ';' does not part the line into columns; it looks parted by ','."),
        ({"delimiter": "::"}, ", line 1: '::' does not part the line into columns; it looks parted by ','."),
        (
            {"delimiter": "\\t"},
            ", line 1: a tab does not part the line into columns; it looks parted by ','.",
        ),
        ({"delimiter": ""}, ": '' cannot be a delimiter"),
        ({"user": "usre"}, ", line 1: unknown column 'usre'; did you mean 'user'? Name the user column."),
        ({"rating": "stars"}, ", line 1: unknown column 'stars'"),
        ({"item": 4}, ", line 1: no column 4; there are 4, numbered from 0 to 3."),
        ({"item": -1}, ", line 1: no column -1"),
        ({"item": "user"}, ", line 1: one column was named for two purposes"),
        (
            {"header": False, "item": 1},
            ", line 1: without a header the user column has to be told; give its number (user=0).",
        ),
        (
            {"header": False, "user": "user"},
            ", line 1: without a header, columns are numbers counted from 0, not 'user'.",
        ),
        (
            {"header": False, "user": 0, "item": 1, "rating": 2},
            ", line 1, column '2': 'rating' is not a number; mend it",
        ),
    ],
)
def test_bad_options(tmp_path, options, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(HEAD + GOOD)
    with pytest.raises(DataError) as error:
        read_csv(path, **options)
    assert str(error.value).startswith(f"{path}{message}")


def test_lines_are_counted_behind_values_of_several_lines(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'user,item,note,rating\n1,2,"a\nb\nc",3\n1,2,x,bad\n')
    with pytest.raises(DataError, match="line 5, column 'rating': 'bad'"):
        read_csv(path)


def packed(damage):
    whole = bytearray(gzip.compress(HEAD + GOOD * 1000, mtime=0))
    return bytes(damage(whole) or whole)


def flip(position):
    def damage(data):
        data[position] ^= 0xFF

    return damage


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + GOOD, ": not a gzip file in spite of its name"),
        (packed(lambda data: data[:-20]), ": the gzip file is cut short"),
        (packed(flip(-6)), ": the gzip file is damaged"),
        (packed(flip(20)), ": the gzip file is damaged"),
        (gzip.compress(b"", mtime=0), ": the file is empty."),
    ],
    ids=["no-gzip", "cut", "checksum", "content", "empty"],
)
def test_bad_gzip(tmp_path, content, message):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_csv(path)
    assert str(error.value).startswith(f"{path}{message}")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.csv: there is no such file"):
        read_csv(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="this is a folder; name the file in it"):
        read_csv(tmp_path)


def test_a_page_that_is_not_as_it_was_written_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({"user": list(range(1000)), "item": list(range(1000, 2000))})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    at = data.find((1500).to_bytes(8, "little"))
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"the Parquet file is damaged .*; copy it again"):
        read_csv(path)


def test_a_name_of_a_parquet_column_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"user": [1], "item": [2]}), path)
    path.write_bytes(path.read_bytes().replace(b"user", b"us\xffr"))
    with pytest.raises(DataError):
        read_csv(path)


@pytest.mark.parametrize("kind", ["gzip", "parquet"])
def test_files_that_are_larger_inside_than_memory_are_refused(tmp_path, monkeypatch, kind):
    for module in ("unpacking", "reading"):
        monkeypatch.setattr(f"fedrec.data.{module}.most_bytes", lambda: 40_000)
    path = tmp_path / "rows"
    for rows in (1_000, 10_000):
        if kind == "gzip":
            path.write_bytes(gzip.compress(HEAD + GOOD * rows))
        else:
            pq.write_table(pa.table({"user": [1] * rows, "item": [2] * rows}), path)
        if rows == 1_000:
            assert len(read_csv(path)) == rows
    with pytest.raises(DataError, match="memory"):
        read_csv(path)
