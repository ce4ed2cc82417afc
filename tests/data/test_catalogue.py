import gzip
import os
from pathlib import Path

import pytest

from fedrec.data import catalogue, filter_interactions, load, read_csv, stats
from fedrec.errors import DataError

FOLDER = Path(os.environ.get("FEDREC_DATA") or "no data folder")
# users, items and rows after "at least 10 rows per user", distinct pairs of all rows, users with a newest tie
COUNTS = {
    "ml-100k": ((943, 1682, 100000), 100000, 415),
    "ml-1m": ((6040, 3706, 1000209), 1000209, 2544),
    "filmtrust": ((1002, 2042, 33372), 35494, None),
    "lastfm-2k-plays": ((1874, 17612, 92780), 92834, None),
    "lastfm-2k": ((1269, 12322, 183415), 71064, 1287),
    "amazon-video": ((1372, 7957, 23181), 63836, 2216),
    "anime": ((3761, 7153, 416058), 419943, None),
    "douban": ((2963, 3000, 136645), 136891, None),
    "gowalla": ((29857, 40981, 1027361), 1027370, None),
}


def shape(data):
    return data.n_users, data.n_items, len(data)


def test_every_entry_is_described():
    assert set(catalogue) == {"demo", *COUNTS}
    for name, entry in catalogue.items():
        assert entry.name == name
        assert entry.terms.endswith(".")
        assert entry.title


@pytest.mark.parametrize("name", COUNTS)
def test_real_counts(real_data, name):
    entry, (filtered, pairs, ties) = catalogue[name], COUNTS[name]
    data = real_data(name)
    assert shape(data) == (entry.users, entry.items, entry.rows)
    assert data.terms == entry.terms
    numbers = stats(data)
    assert numbers["distinct_pairs"] == pairs
    assert numbers["has_timestamps"] == entry.timestamps
    assert numbers["newest_ties"] == ties
    assert shape(filter_interactions(data, min_per_user=10, positive_only=True)) == filtered


def test_merging_reproduces_the_clean_forms(real_data):
    tags = filter_interactions(real_data("lastfm-2k"), duplicates="merge", min_per_user=10)
    assert shape(tags) == (881, 12037, 67284)
    assert len(filter_interactions(real_data("filmtrust"), duplicates="merge", min_per_user=10)) == 33369
    assert shape(filter_interactions(real_data("lastfm-2k"), min_per_user=5)) == (1600, 12454, 185650)


def test_published_form_without_header():
    path = FOLDER / "ml-100k" / "pfedrec-ratings.dat.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    assert shape(read_csv(path, 0, 1, 2, 3, header=False)) == (943, 1682, 100000)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """One row of ml-100k in a named folder, in that of FEDREC_DATA and in the cache, told apart by item."""
    for name in ("named", "env", "cache"):
        (tmp_path / name / "ml-100k").mkdir(parents=True)
        with gzip.open(tmp_path / name / "ml-100k" / "ratings.csv.gz", "wt") as file:
            file.write(f"user,item,rating,timestamp\n1,{name},3,4\n")
    monkeypatch.setenv("FEDREC_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_order_of_the_places(folders, monkeypatch):
    assert load("ml-100k", folders / "named").item_ids == ("named",)
    assert load("ml-100k").item_ids == ("env",)
    (folders / "env" / "ml-100k" / "ratings.csv.gz").unlink()
    assert load("ml-100k").item_ids == ("cache",)
    monkeypatch.delenv("FEDREC_DATA")
    assert load("ml-100k").item_ids == ("cache",)


def test_a_data_folder_that_is_not_there(folders):
    with pytest.raises(DataError, match=r"the data folder '.*nowhere' does not exist"):
        load("ml-100k", folders / "nowhere")


def test_unknown_names(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="unknown data set 'ml100k'; did you mean 'ml-100k'"):
        load("ml100k")
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("user,item\n1,2\n")
    with pytest.raises(DataError, match="use read_csv"):
        load("rows.csv")


def test_no_public_download(folders):
    with pytest.raises(DataError) as error:
        load("gowalla")
    assert "it has no public download" in str(error.value)
    assert str(folders / "cache" / "gowalla" / "ratings.csv.gz") in str(error.value)
