"""Test-wide set-up: eight simulated CPU devices, set before JAX is imported anywhere."""

import os

_DEVICES = "--xla_force_host_platform_device_count=8"
if _DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def pytest_xdist_auto_num_workers(config):
    """One worker more than cores, since many tests wait; memory bounds them at 5 GiB a worker."""
    del config
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min((os.cpu_count() or 1) + 1, int(gibibytes // 5)))
