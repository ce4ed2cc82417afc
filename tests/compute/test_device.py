"""The device and the threads a run asks for, on machines with and without a GPU."""

import os

import pytest
import torch

from fedrec.compute import device as asked
from fedrec.compute import memory
from fedrec.compute.device import check_threads, cpu_threads, resolve_device
from fedrec.errors import ConfigError


@pytest.fixture(params=[0, 2])
def gpus(request, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return request.param


def test_auto_is_the_gpu_where_there_is_one(gpus):
    assert resolve_device("auto") == torch.device("cuda" if gpus else "cpu")
    assert resolve_device("cpu") == torch.device("cpu")


def test_a_gpu_that_is_there_is_taken_and_another_one_refused(gpus):
    if gpus:
        assert [str(resolve_device(name)) for name in ("cuda", "cuda:0", "cuda:1")] == ["cuda", "cuda:0", "cuda:1"]
        with pytest.raises(ConfigError, match=r"^there is no device cuda:2 here; the last one is cuda:1\.$"):
            resolve_device("cuda:2")
    else:
        with pytest.raises(ConfigError, match=r"^no CUDA device is available here; use the device cpu\.$"):
            resolve_device("cuda:0")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:12345", "cpu:0", "", "CPU", "cuda:-1"])
def test_other_names_are_unknown(gpus, name):
    with pytest.raises(ConfigError, match=r"^unknown device"):
        resolve_device(name)


@pytest.mark.parametrize(("processors", "most"), [(1, 64), (16, 64), (17, 68), (None, 64)])
def test_threads_are_limited_by_the_processors_there_are(monkeypatch, processors, most):
    monkeypatch.setattr(asked.os, "cpu_count", lambda: processors)
    check_threads(1)
    check_threads(most)
    for number in (0, -1, most + 1):
        with pytest.raises(ConfigError, match=f"but there are {processors or 1} processors; use 1 to {most}"):
            check_threads(number)


def test_threads_are_changed_for_a_while_whatever_happens(other_threads):
    before = torch.get_num_threads()
    with cpu_threads(other_threads):
        assert torch.get_num_threads() == other_threads
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), cpu_threads(other_threads):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
    with cpu_threads(None):
        assert torch.get_num_threads() == before


def test_free_memory_is_what_the_system_says_or_what_it_has(monkeypatch):
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory.available(torch.device("cpu")) <= whole

    def none(*given):
        raise FileNotFoundError

    monkeypatch.setattr(memory, "open", none, raising=False)
    assert memory.available(torch.device("cpu")) == whole


def test_the_memory_of_a_gpu_is_asked_of_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5_000, 9_000))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3_000_000)
    assert memory.available(torch.device("cuda")) == 5_000
    assert memory.peak_mb(torch.device("cuda")) == 3.0


def test_the_most_memory_of_a_process_is_in_megabytes_on_every_system(monkeypatch):
    here = memory.peak_mb(torch.device("cpu"))
    assert 50 < here < 50_000
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert memory.peak_mb(torch.device("cpu")) == pytest.approx(here / 1024, rel=0.05)
