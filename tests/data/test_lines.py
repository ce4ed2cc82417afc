"""Every line of a file becomes a row, or the file is refused with the line to look at."""

import csv
import io

import numpy as np
import pytest

from fedrec.data import lines, read_csv
from fedrec.errors import DataError

WIDE = [(u, i, f"note {u} on {i}", 1 + (u + i) % 5) for u in range(24) for i in range(15)]


def write(path, rows, end="\n", header="user,item,note,rating", last=True):
    text = end.join([header, *(",".join(str(value) for value in row) for row in rows)]) + (end if last else "")
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.csv"


def with_notes(**notes):
    """The wide rows with other notes at some places."""
    return [(u, i, notes.get(f"at{k}", note), r) for k, (u, i, note, r) in enumerate(WIDE)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    "notes",
    [
        {"at20": '"good', "at236": '"bad'},  # two opening quotes
        {"at20": '"good', "at236": 'bad"'},  # an opening and, far below, a closing one
        {"at20": '"', "at236": '"'},  # a lone quote, twice
        {"at20": '"', "at21": '"'},  # in neighbouring lines: one row would be lost
        {"at20": '"good', "at21": 'bad"'},
        {"at20": '"good', "at236": '"bad', "at300": '"worse', "at310": 'end"'},
        {"at20": '"good', "at236": '"bad', "at300": '"worse'},
        {"at359": '"open'},  # in the last line
        {"at10": '5" screen', "at359": '"open'},  # the same with an even number of quotes
        {"at10": '"5" screen'},  # the value would lose its quotes
    ],
)
def test_stray_quotes_are_refused_where_they_open(path, end, last, notes):
    write(path, with_notes(**notes), end, last=last)
    opened = min(int(place[2:]) for place in notes if notes[place].startswith('"'))
    with pytest.raises(DataError, match=f", line {opened + 2}: a quote"):
        read_csv(path)


def test_a_stray_quote_in_the_header_or_beside_wrapped_values_is_refused(path):
    write(path, with_notes(at5='bad"'), header='user,item,"note,rating')
    with pytest.raises(DataError, match="line 1: a quote that opens here closes in line 7"):
        read_csv(path)
    path.write_text('user,item,rating,"note\n1,2,3,bad"\n1,3,4,good\n')
    with pytest.raises(DataError, match="line 1: a quote that opens here closes in line 2"):
        read_csv(path)
    wrapped = [(u, f'"item, {i}"', note, r) for u, i, note, r in with_notes(at7='"good', at9='bad"')]
    write(path, wrapped)
    with pytest.raises(DataError, match="line 9: a quote"):
        read_csv(path)
    write(path, with_notes(at7='"good', at9='bad"'))
    with pytest.raises(DataError, match="line 9: a quote that opens here closes in line 11, and line 10 looks"):
        read_csv(path)


def test_without_ratings_a_swallowed_line_is_known_by_its_columns(path):
    write(path, [(u, i, note) for u, i, note, _ in with_notes(at7='"', at9='"')], header="user,item,note")
    with pytest.raises(DataError, match="line 9: a quote"):
        read_csv(path)
    write(path, [(u, i, note, "") for u, i, note, _ in with_notes(at7='"', at9='"')])
    with pytest.raises(DataError, match="line 9: a quote"):
        read_csv(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("last", [True, False])
def test_orderly_files_lose_nothing(path, end, blank, last):
    notes = {"at3": '"a, b"', "at4": '"say ""hi"""', "at5": '""', "at6": '5" screen', "at7": '""""', "at8": '"x"'}
    rows = with_notes(**notes)
    write(path, rows, end + end if blank else end, last=last)
    data = read_csv(path)
    assert len(data) == len(WIDE)
    assert data.notes == ()
    assert [data.item_ids[code] for code in data.items] == [row[1] for row in rows]
    assert data.ratings.tolist() == [row[3] for row in rows]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_values_of_several_lines_are_read_and_reported(path, end):
    shapes = [
        '"a\nb, c\n\nd"',
        '"said ""no"", \n 4, 5"',
        '"as a table:, \n1,2,x,3\n4,5,y,6"',
        '"so\nwell, I, am, glad"',
    ]
    rows = with_notes(at3=shapes[0], at9=shapes[1], at11=shapes[2], at12=shapes[3])
    write(path, rows, end)
    data = read_csv(path)
    assert data.ratings.tolist() == [row[3] for row in rows]
    assert data.notes == (f"{path}: 4 rows have values of several lines.",)


def test_checks_hold_across_pieces_of_the_file(path, monkeypatch):
    monkeypatch.setattr(lines, "_CHUNK", 7)
    monkeypatch.setattr("fedrec.data.text._BLOCK", 1 << 10)
    write(path, with_notes(at3='"a, b"', at4='"say ""hi"""', at5='""'), "\r\n")
    assert len(read_csv(path)) == len(WIDE)
    write(path, with_notes(at20='"', at21='"'))
    with pytest.raises(DataError, match="line 22: a quote"):
        read_csv(path)


def test_the_quick_check_of_quotes_agrees_with_the_strict_reader(monkeypatch):
    """Short random texts: where it calls the quotes orderly the strict reader has no complaint, too."""
    rng, orderly = np.random.default_rng(0), 0
    for size in (3, 1000):
        monkeypatch.setattr(lines, "_CHUNK", size)
        for _ in range(3000):
            data = bytes(rng.choice(list(b'"""",,a\n'), rng.integers(1, 14)).tolist())
            if lines._quotes_in_order(lines.Text(data, ",", True, "text")):
                orderly += 1
                list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    assert orderly > 300


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 22])
def test_lines_that_are_not_empty_are_counted(monkeypatch, chunk):
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    rng = np.random.default_rng(1)
    for _ in range(300):
        data = bytes(rng.choice(list(b"a \n\r"), rng.integers(1, 12)).tolist())
        expected = sum(1 for line in data.replace(b"\r", b"\n").split(b"\n") if line)
        assert lines.count_lines(data) == expected, data


def test_rows_that_the_parser_lost_are_noticed(path, monkeypatch):
    write(path, WIDE)
    from fedrec.data import text

    whole = text._parse
    monkeypatch.setattr(text, "_parse", lambda *given: (whole(*given)[0].slice(0, 300), []))
    with pytest.raises(DataError, match="300 rows were read from 361 lines"):
        read_csv(path)
    write(path, with_notes(at3='"a\nb"'))
    with pytest.raises(DataError, match="300 rows were read where a strict reader finds 361"):
        read_csv(path)


@pytest.mark.parametrize("delimiter", [",", "\t", " "])
@pytest.mark.parametrize("chunk", [1, 5, 1 << 22])
def test_where_no_white_space_is_feared_no_value_has_any(monkeypatch, chunk, delimiter):
    """Short random texts: where the strict reader finds some in a value it must have been feared."""
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    rng, calm = np.random.default_rng(2), 0
    signs = np.array([*'",,aa\n\n', delimiter, " ", "\t", "\r", "\x1f", "\u00a0"])
    for _ in range(1500):
        text = lines.Text("".join(rng.choice(signs, rng.integers(1, 9))).encode(), delimiter, True, "text")
        try:
            rows = list(text.rows())
        except DataError:
            continue
        if not lines.may_have_space(text) and all(len(row.lines) == 1 for row in rows):
            calm += 1
            assert all(value == value.strip() for row in rows for value in row.values), text
    assert calm > 100


def test_white_space_is_feared_only_where_there_is_some():
    for data, delimiter in (
        (b"a,b\r\n1,2\r\n", ","),
        (b"a\tb\n1\t2\n", "\t"),
        (b"a\x1fb\n", "\x1f"),
        (b'"a","b"\n', ","),
    ):
        assert not lines.may_have_space(lines.Text(data, delimiter, True, "text")), data


@pytest.mark.parametrize(
    ("rows", "delimiter"),
    [(" 7 ,x\u00a0", ","), ("7,\u2009x", ","), ("\x1f7,x\t", ","), ('"\t7"\tx', "\t"), ('"7\n",x', ",")],
)
def test_white_space_around_values_is_dropped_wherever_it_stands(path, rows, delimiter):
    rest = "".join(f"{user}{delimiter}x\n" for user in range(1000, 1100))
    path.write_text(f"user{delimiter}item\n{rest}{rows}\n", newline="")
    data = read_csv(path)
    assert data.user_ids[-1] == 7
    assert data.item_ids == ("x",)
