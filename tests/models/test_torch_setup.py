"""How torch computes: one thread and float32 where numbers must not depend on the plan."""

import os
import subprocess
import sys

import faiss
import pytest
import torch

from corag_ray.models.torch_setup import OFFLINE, SLEEPING_THREADS, Compute, native_dtype


@pytest.fixture
def threads():
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    yield
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])


@pytest.mark.parametrize(("compute", "expected"), [(Compute(2), 2), (Compute(2, deterministic=True), 1)])
def test_threads_come_from_the_plan_unless_numbers_must_not_depend_on_it(threads, compute, expected):
    torch.set_num_threads(3 - expected)
    faiss.omp_set_num_threads(3 - expected)
    compute.apply()
    assert (torch.get_num_threads(), faiss.omp_get_max_threads()) == (expected, expected)


def test_unless_told_otherwise_models_compute_in_float32():
    assert Compute(1).dtype == "float32"


@pytest.mark.parametrize(("multiplies_bfloat16", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_bfloat16_is_native_only_where_the_cpu_multiplies_it(monkeypatch, multiplies_bfloat16, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # a GPU that the local profile does not use
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: multiplies_bfloat16)
    assert native_dtype() == expected


def test_the_hub_libraries_are_kept_offline_and_none_reports_to_its_maker(monkeypatch, threads):
    for name in OFFLINE:
        monkeypatch.delenv(name, raising=False)
    Compute(1).apply()
    named = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY")
    assert {name: os.environ.get(name) for name in named} == dict.fromkeys(named, "1")


def test_threads_that_wait_sleep_in_commands_and_jobs_alike_where_the_libraries_can_still_be_told():
    told = "import os, sys\n{}\nprint(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name not in SLEEPING_THREADS}
    first = "from corag_ray.models.torch_setup import Compute; Compute(1).apply()"
    for code, expected in ((first, "PASSIVE True"), ("import jobs", "PASSIVE False"), ("", "None False")):
        run = subprocess.run([sys.executable, "-c", told.format(code)], env=environment, capture_output=True, text=True)
        assert run.stdout.strip() == expected, run.stderr
