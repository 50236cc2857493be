"""Files of chains: written whole, and named where they are damaged or exchanged."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from sparse_lds.inference.posterior import checkpoint
from sparse_lds.inference.posterior.chains import raw_key
from sparse_lds.models.files import run_folder


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """The file of chain 0 after 5 steps, and its start."""
    monkeypatch.setattr(checkpoint, "record", lambda state: state["z"])
    start = {"z": np.zeros(3), "key": np.zeros(2, np.uint32)}
    file = tmp_path / "chain0.npz"
    draws = [np.full((2, 3), k) for k in range(2)]
    state = {"z": np.ones(3), "key": np.array([1, 2], np.uint32)}
    checkpoint.save_chain(file, 0, state, draws, 5)
    return file, start


def test_a_chain_goes_on_from_its_file(chain):
    file, start = chain
    state, draws, done = checkpoint.load_chain(file, 0, start)
    assert done == 5 and [d.shape for d in draws] == [(2, 3)] * 2
    np.testing.assert_array_equal(state["z"], np.ones(3))
    assert checkpoint.load_chain(file.with_name("chain7.npz"), 7, start) == (start, [], 0)


def test_a_file_of_another_chain_is_refused(chain):
    file, start = chain
    with pytest.raises(ValueError, match="chain0.npz' is of chain 0, and stands where chain 1"):
        checkpoint.load_chain(file, 1, start)
    with pytest.raises(ValueError, match="another shape"):
        checkpoint.load_chain(file, 0, {**start, "z": np.zeros(4)})


def test_every_cut_and_every_flip_is_noticed(chain):
    """The file cut at any length is refused; a byte changed is refused, or changes nothing that is read."""
    file, start = chain
    whole = file.read_bytes()
    wanted = checkpoint.load_chain(file, 0, start)
    for at in range(0, len(whole), 23):
        file.write_bytes(whole[:at])
        with pytest.raises(ValueError, match="chain0.npz' is damaged.*delete it"):
            checkpoint.load_chain(file, 0, start)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            found = checkpoint.load_chain(file, 0, start)
        except ValueError as error:
            assert "chain0.npz" in str(error)
        else:
            for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
                np.testing.assert_array_equal(x, y)


def test_a_whole_number_is_a_key():
    np.testing.assert_array_equal(raw_key(3), jax.random.key_data(jax.random.key(3)))
    for wrong in ("seed", -1, 2**70, 1.5, None):
        with pytest.raises((TypeError, ValueError), match="key is"):
            raw_key(wrong)


def test_a_damaged_run_is_named(tmp_path):
    run_folder(tmp_path, {"seed": 1})
    for text in ("", "{", "[]", "\x00"):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(ValueError, match="run.json' is damaged.*--force"):
            run_folder(tmp_path, {"seed": 1})


DESCRIBED = """
import jax.numpy as jnp
import numpyro.distributions as dist
from sparse_lds.inference.posterior.sample import describe_prior
from sparse_lds.models.covariance_site import BlockInverseWishart
wishart = dist.InverseWishart(3.0, scale_matrix=jnp.eye(2))
for prior in (BlockInverseWishart.restricted(wishart, (1, 1), 2), dist.Normal(jnp.zeros(2), 2.0).to_event(1)):
    print(describe_prior(prior))
"""


def test_the_next_process_knows_the_priors_again():
    """Sets of text have another order in each process, unless a seed is given."""
    said = []
    for seed in ("1", "2"):  # orders of three names differ
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-W", "ignore", "-c", DESCRIBED]
        said.append(subprocess.run(command, env=environment, capture_output=True, text=True).stdout)
    assert said[0] == said[1] and said[0].count("\n") == 2
