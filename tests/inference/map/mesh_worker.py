"""A process of a fit on several devices or processes, started by test_mesh.py: what to do is in its first argument."""

import json
import os
import sys

asked = json.loads(sys.argv[1])
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + asked.get("flags", "")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
if asked["processes"] > 1:
    jax.distributed.initialize(
        asked["coordinator"],
        asked["processes"],
        asked["index"],
        heartbeat_timeout_seconds=10,
        shutdown_timeout_seconds=10,
    )

import numpy as np  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

from sparse_lds.inference import fit_map, regularization_path  # noqa: E402
from sparse_lds.models import Laplace, open_cohort  # noqa: E402

mesh = Mesh(np.array(jax.devices()), ("seq",))
found = {}
for name in asked["cohorts"]:
    disk = open_cohort(name)
    for where in asked["where"]:
        if where == "path":
            path = regularization_path(disk, 2, betas=[1.0, 5.0], mesh=mesh, max_iter=5)
            found[f"{os.path.basename(name)} path"] = np.stack([fit.params.A for fit in path.fits])
            continue
        cohort = disk if where == "disk" else disk.sample
        fit = fit_map(cohort, 2, Laplace(3.0), mesh=mesh, **asked["options"])
        for key, value in fit.params._asdict().items():
            if value is not None:
                found[f"{os.path.basename(name)} {where} {key}"] = np.asarray(value)
np.savez(f"{asked['out']}-{asked['index']}.npz", **found)
