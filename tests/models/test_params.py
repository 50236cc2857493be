"""Parameters: changes of basis, the canonical form, validation, files."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sparse_lds.models import (
    LDSParams,
    canonical_scaling,
    change_basis,
    check_params,
    is_stable,
    load_params,
    save_params,
    simulate,
    spectral_radius,
)
from sparse_lds.models.basis import whitened

by_property = settings(derandomize=True, deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)
shapes = st.sampled_from([(1, 2), (3, 3), (5, 2)])  # (l, d): few, as each one is compiled


def covariance(rng, n):
    F = rng.normal(size=(n, n + 2))
    return F @ F.T


def random_params(seed, l=4, d=3):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(l, l)) * (rng.random((l, l)) < 0.6)
    C, pi1 = rng.normal(size=(d, l)), rng.normal(size=l)
    Q, R, V1 = covariance(rng, l), covariance(rng, d), covariance(rng, l)
    return LDSParams(A, C, Q, R, pi1, V1)


def moments(params, T=4):
    """Mean and covariance of (y_1, …, y_T): the distribution itself, whatever the basis."""
    A, C, Q, R, m, V = (np.asarray(x) for x in params)
    means, blocks, P = [], {}, V
    for t in range(T):
        means.append(C @ m)
        for s in range(t, T):
            blocks[s, t] = C @ np.linalg.matrix_power(A, s - t) @ P @ C.T + R * (s == t)
            blocks[t, s] = blocks[s, t].T
        m, P = A @ m, A @ P @ A.T + Q
    return np.concatenate(means), np.block([[blocks[s, t] for t in range(T)] for s in range(T)])


def assert_same(a, b, rtol=0.0, atol=0.0):
    for name, x, y in zip(LDSParams._fields, a, b, strict=True):
        assert_allclose(x, y, err_msg=name, rtol=rtol, atol=atol)


def test_pytree_passes_through_transformations():
    draws = jax.tree.map(lambda *x: jnp.stack(x), *[random_params(s) for s in range(3)])
    assert (draws.n_states, draws.n_channels) == (4, 3)
    radii = jax.jit(jax.vmap(spectral_radius))(draws)
    assert_allclose(radii, [spectral_radius(random_params(s).A) for s in range(3)])


def test_spectral_radius_and_stability():
    angle = 0.9 * np.array([[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]])
    assert_allclose(spectral_radius(angle), 0.9)
    assert_allclose(spectral_radius(np.stack([angle, 2 * angle])), [0.9, 1.8])
    params = random_params(0)
    assert is_stable(params._replace(A=0.99 * np.eye(4)))
    assert not is_stable(params._replace(A=np.eye(4)))


@by_property
@given(seeds, shapes)
def test_change_of_basis_keeps_the_distribution(seed, shape):
    l, params = shape[0], random_params(seed, *shape)
    W = np.eye(l) + np.random.default_rng(seed).uniform(-0.4, 0.4, (l, l)) / l
    moved = change_basis(params, W)
    for a, b in zip(moments(moved), moments(params), strict=True):
        assert_allclose(a, b, atol=1e-9 * np.abs(moments(params)[1]).max())
    spectra = (np.poly(np.asarray(p.A)) for p in (moved, params))
    assert_allclose(*spectra, atol=1e-10 * max(1, np.abs(params.A).max()) ** l)
    for X in (moved.Q, moved.V1):
        assert_array_equal(X, X.T)
    assert_same(change_basis(moved, np.linalg.inv(W)), params, atol=1e-10, rtol=1e-9)


@by_property
@given(seeds, shapes)
def test_canonical_scaling_changes_neither_distribution_nor_penalty(seed, shape):
    params = random_params(seed, *shape)
    canon = canonical_scaling(params)
    for a, b in zip(moments(canon), moments(params), strict=True):
        assert_allclose(a, b, atol=1e-11 * np.abs(moments(params)[1]).max())
    assert_array_equal(np.sort(np.abs(canon.A), axis=None), np.sort(np.abs(params.A), axis=None))


@by_property
@given(seeds, shapes)
def test_canonical_scaling_is_idempotent_to_the_last_bit(seed, shape):
    once = canonical_scaling(random_params(seed, *shape))
    assert_same(canonical_scaling(once), once)


@by_property
@given(seeds, shapes, st.floats(1e-3, 1e3))
def test_canonical_scaling_forgets_scale_signs_and_order(seed, shape, c):
    l, params = shape[0], random_params(seed, *shape)
    rng = np.random.default_rng(seed)
    moved = change_basis(params, c * np.diag(rng.choice([-1.0, 1.0], l))[rng.permutation(l)])
    assert_same(canonical_scaling(moved), canonical_scaling(params), rtol=1e-9, atol=1e-12)


def test_canonical_form_is_the_documented_one():
    for seed in range(5):
        canon = canonical_scaling(random_params(seed, l=5))
        C, Q, R = (np.asarray(x) for x in (canon.C, canon.Q, canon.R))
        assert_allclose(np.diag(Q).mean(), 1)
        assert (np.diff(np.diag(Q) * np.diag(C.T @ np.linalg.inv(R) @ C)) < 0).all()
        assert (C[np.abs(C).argmax(axis=0), range(5)] > 0).all()


def test_canonical_scaling_of_equal_states_goes_by_A():
    A = np.array([[0.1, 0.0, 0.3], [0.0, 0.9, 0.0], [0.2, 0.0, 0.5]])
    params = LDSParams(A, np.eye(3), np.eye(3), np.eye(3), np.zeros(3), np.eye(3))
    assert_array_equal(np.diag(canonical_scaling(params).A), [0.9, 0.5, 0.1])
    for seed in range(5):  # equal but for rounding, which must not decide
        scaled = change_basis(params, np.diag(np.random.default_rng(seed).random(3)))
        assert_allclose(np.diag(canonical_scaling(scaled).A), [0.9, 0.5, 0.1])


def test_sign_of_an_unseen_state_comes_from_its_first_mean():
    params = random_params(1, l=2)
    C = params.C * np.array([1.0, 0.0])
    canon = canonical_scaling(params._replace(C=C, pi1=np.array([1.0, -2.0])))
    assert canon.pi1[1] > 0  # last, because it has no signal


def test_zeros_of_A_stay_exact_and_unsigned():
    for seed in range(10):
        params = random_params(seed)
        A = np.asarray(canonical_scaling(params).A)
        assert (A == 0).sum() == (params.A == 0).sum() > 0
        assert not np.signbit(A[A == 0]).any()


def test_check_params_returns_arrays_of_the_leaves_precision():
    params = random_params(0)
    checked = check_params(params, n_channels=3, n_states=4)
    assert_same(checked, params, rtol=1e-15)
    assert all(isinstance(x, jax.Array) and x.dtype == jnp.float64 for x in checked)
    single = check_params(LDSParams(*(np.float32(x) for x in params)))
    assert all(x.dtype == jnp.float32 for x in single)
    integer = LDSParams(*(np.ones((1, 1), int),) * 4, np.ones(1, int), np.ones((1, 1), int))
    assert all(x.dtype == jnp.float64 for x in check_params(integer))


def test_check_params_accepts_scales_far_apart_and_removes_asymmetry_of_rounding():
    params = random_params(0, l=2)
    Q = np.array([[1.0, 1e-14], [0.0, 1e-20]])
    checked = check_params(params._replace(Q=Q))
    assert_array_equal(checked.Q, checked.Q.T)


ones = np.ones((4, 4))
BAD = {
    "square": ({"A": np.ones((4, 3))}, {}, r"params\.A has shape \(4, 3\).*must be \(4, 4\)"),
    "columns": ({"C": np.ones((3, 5))}, {}, r"params\.C has shape \(3, 5\).*\(3, 4\)"),
    "vector": ({"pi1": np.ones((4, 1))}, {}, r"params\.pi1 has shape \(4, 1\).*\(4,\)"),
    "channels": ({}, {"n_channels": 2}, r"params\.C has shape \(3, 4\).*2 channels"),
    "states": ({}, {"n_states": 5}, r"params\.A has shape \(4, 4\).*5 states"),
    "no state": ({"A": np.ones((0, 0))}, {}, "at least one state"),
    "nan": ({"C": np.full((3, 4), np.nan)}, {}, r"params\.C is nan at index \(0, 0\)"),
    "infinity": ({"pi1": np.array([0, 1, np.inf, 0])}, {}, r"params\.pi1 is inf at index \(2,\)"),
    "asymmetric": ({"Q": np.eye(4) + np.triu(ones, 1)}, {}, r"params\.Q is not symmetric.* by 1;"),
    "indefinite": ({"V1": np.diag([1, 2, 3, -0.5])}, {}, r"params\.V1 .*eigenvalue is -0\.5;"),
    "singular": ({"R": np.ones((3, 3))}, {}, r"params\.R is not positive definite"),
    "complex": ({"A": ones * 1j}, {}, r"params\.A has dtype complex128"),
    "ragged": ({"A": [[1.0], [1.0, 2.0]]}, {}, r"params\.A is not a rectangular array"),
}


@pytest.mark.parametrize(("change", "sizes", "message"), BAD.values(), ids=BAD.keys())
def test_check_params_names_what_is_wrong(change, sizes, message):
    with pytest.raises(ValueError, match=message):
        check_params(random_params(0)._replace(**change), **sizes)


@pytest.mark.parametrize("suffix", [".npz", ".json", ".NPZ"])
def test_files_round_trip_exactly(tmp_path, suffix):
    path = tmp_path / f"fit{suffix}"
    for seed in range(2):  # the second time over the first file
        params = random_params(seed)
        save_params(str(path), params)
        assert_same(load_params(path), params)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_npz_keeps_single_precision_and_json_is_readable(tmp_path):
    single = LDSParams(*(jnp.float32(x) for x in random_params(0)))
    save_params(tmp_path / "fit.npz", single)
    assert all(x.dtype == np.float32 for x in load_params(tmp_path / "fit.npz"))
    save_params(tmp_path / "fit.json", single)
    text = (tmp_path / "fit.json").read_text()
    assert np.asarray(json.loads(text)["A"]).shape == (4, 4) and len(text.splitlines()) == 8


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_failed_write_leaves_the_earlier_file(tmp_path, monkeypatch, call):
    path = tmp_path / "fit.npz"
    save_params(path, random_params(0))
    monkeypatch.setattr(call, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_params(path, random_params(1))
    assert_array_equal(load_params(path).A, random_params(0).A)
    assert [p.name for p in tmp_path.iterdir()] == ["fit.npz"]


def test_files_that_are_no_parameters(tmp_path):
    def stored(name, content):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    with pytest.raises(ValueError, match=r"suffix '\.pkl'"):
        save_params(tmp_path / "fit.pkl", random_params(0))
    with pytest.raises(ValueError, match=r"suffix '\.csv'"):
        load_params(tmp_path / "fit.csv")
    with pytest.raises(FileNotFoundError):
        load_params(tmp_path / "none.npz")
    for name, content in [
        ("a.npz", b""),
        ("b.npz", b"PK\x03\x04"),
        ("c.json", b"{"),
        ("d.json", b"3"),
    ]:
        with pytest.raises(ValueError, match=f"cannot read parameters from .*{name}"):
            load_params(stored(name, content))
    with pytest.raises(ValueError, match="lacks C, R, pi1, V1 and holds A, Q"):
        load_params(stored("e.json", b'{"A": [[1]], "Q": [[1]]}'))
    fields = {name: x.tolist() for name, x in random_params(0)._asdict().items()}
    for change, message in [({"Q": [[1.0]]}, r"Q has shape \(1, 1\)"), ({"A": "x"}, "A has dtype")]:
        with pytest.raises(ValueError, match=message):
            load_params(stored("f.json", json.dumps(fields | change).encode()))
    np.savez(tmp_path / "g.npz", **(random_params(0)._asdict() | {"A": np.array([{}], object)}))
    with pytest.raises(ValueError, match="allow_pickle"):
        load_params(tmp_path / "g.npz")


def test_whitened_states_are_a_change_of_basis_to_unit_moments():
    params = random_params(0)
    F = np.linalg.cholesky(covariance(np.random.default_rng(1), 4))
    found, wanted = whitened(params, F), change_basis(params, np.linalg.inv(F))
    for a, b in zip(found, wanted, strict=True):
        assert_allclose(a, b, atol=1e-12)
    assert_allclose(whitened(params._replace(V1=F @ F.T), F).V1, np.eye(4), atol=1e-12)


def test_lists_of_numbers_are_parameters():
    I = [[1.0, 0.0], [0.0, 1.0]]
    params = LDSParams(
        [[0.5, 0.0], [0.1, 0.5]], I, I, I, [0.0, 0.0], I, B=[[1.0], [0.0]], D=[[0], [0]]
    )
    assert (params.n_states, params.n_inputs) == (2, 1)
    found = simulate(jax.random.key(0), params, [4], inputs=[np.ones((4, 1))])
    arrays = LDSParams(*map(np.asarray, params))
    wanted = simulate(jax.random.key(0), arrays, [4], inputs=[np.ones((4, 1))])
    np.testing.assert_array_equal(found.cohort.y, wanted.cohort.y)
    assert params._replace(A=I).A.shape == (2, 2)
