"""Shared by all tests: no unit test may start Ray by accident."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
import ray
from hypothesis import HealthCheck, settings

settings.register_profile("corag", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # busy machines
settings.load_profile("corag")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of ONNX Runtime, which the extra `dev` brings, are not passed over in silence."""
    if item.get_closest_marker("onnx") and not all(map(importlib.util.find_spec, ("onnxruntime", "onnx"))):
        pytest.skip("ONNX RUNTIME IS NOT INSTALLED: int8 was not checked")


@pytest.fixture(autouse=True)
def _no_ray(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray.init` raises unless the test is marked `ray`: a unit test that needs a cluster fails loudly."""
    if request.node.get_closest_marker("ray") is None:

        def refuse(*args: object, **kwargs: object) -> None:
            raise AssertionError("this test starts Ray: mark it `ray` and use the fixture `ray_session`")

        monkeypatch.setattr(ray, "init", refuse)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One local Ray for the whole run, on free ports."""
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
