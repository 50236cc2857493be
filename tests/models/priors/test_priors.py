"""Priors on A: penalty, prox, density and draws are those of one distribution; NumPyro takes it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpyro import infer
from numpyro.distributions import biject_to, constraints
from scipy import integrate, optimize, stats

from sparse_lds.models.priors import Flat, GroupLaplace, Laplace

inf = np.inf
by_property = settings(derandomize=True, deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)

PATTERN = np.array([[2.0, inf, 0.7], [0.0, 1.0, 3.0], [inf, 0.5, 0.0]])
PRIORS = {
    "laplace": Laplace(1.3),
    "laplace-matrix": Laplace(PATTERN + 0.2),
    "rows": GroupLaplace(0.8, by="rows"),
    "columns": GroupLaplace([0.5, inf, 2.0], by="columns"),
    "flat": Flat(),
    "laplace-free": Laplace(PATTERN),
    "rows-free": GroupLaplace([inf, 0.0, 1.1], by="rows"),
}
every_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())


def blocks(prior, A):
    """[(beta_g, A_g)] in plain numpy, from the words of the definition."""
    l = len(A)
    beta = np.asarray(prior.beta)
    if isinstance(prior, GroupLaplace):
        beta = np.broadcast_to(beta, (l,))
        return [(beta[i], A[i] if prior.by == "rows" else A[:, i]) for i in range(l)]
    beta = np.broadcast_to(beta, (l, l))
    return [(beta[i, j], A[i : i + 1, j]) for i in range(l) for j in range(l)]


def block_penalty(beta, a):
    norm = np.sqrt(np.sum(a**2))
    return 0.0 if norm == 0 else beta * norm


def penalty(prior, A):
    return sum(block_penalty(beta, a) for beta, a in blocks(prior, np.asarray(A)))


def forced(prior, l=3):
    """Where A must be zero."""
    A = np.arange(1.0, l * l + 1).reshape(l, l)
    hidden = [a for beta, a in blocks(prior, A) if beta == inf]
    return np.isin(A, np.concatenate(hidden)) if hidden else np.zeros((l, l), bool)


def feasible(prior, rng):
    return np.where(forced(prior), 0.0, rng.normal(size=(3, 3)))


# ---- penalty


@every_prior
def test_penalty_is_that_of_the_definition(prior):
    rng = np.random.default_rng(0)
    A = np.stack([feasible(prior, rng) for _ in range(4)])
    assert_allclose(prior.value(A), [penalty(prior, a) for a in A], rtol=1e-14)
    assert jax.eval_shape(prior.value, np.zeros((2, 5, 3, 3))).shape == (2, 5)


@every_prior
def test_penalty_is_infinite_off_the_forced_zeros_only(prior):
    for i, j in np.ndindex(3, 3):
        A = np.zeros((3, 3))
        A[i, j] = 1e-200  # its square is 0 in floating point
        assert np.isinf(prior.value(A)) == forced(prior)[i, j]


@every_prior
def test_gradients_are_finite_and_those_of_the_definition(prior):
    A = feasible(prior, np.random.default_rng(1))
    h, numeric = 1e-6, np.zeros((3, 3))
    for at in np.argwhere(~forced(prior)):
        step = np.zeros((3, 3))
        step[tuple(at)] = h
        numeric[tuple(at)] = (penalty(prior, A + step) - penalty(prior, A - step)) / (2 * h)
    gradient = jax.jit(jax.grad(lambda prior, A: prior.log_prob(A), argnums=(0, 1)))
    wrt_prior, wrt_A = gradient(prior, A)
    assert_allclose(wrt_A, -numeric, atol=1e-8)
    at_zero = gradient(prior, np.zeros((3, 3)))
    assert_array_equal(at_zero[1], 0)  # a subgradient, never NaN
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((wrt_prior, at_zero[0])))


# ---- prox


@every_prior
@by_property
@given(seed=seeds, step=st.floats(0.0, 3.0))
def test_prox_minimises_its_objective(prior, seed, step):
    """A point X is the minimiser iff f(X + D) ≥ f(X) + ½‖D‖² for all D (f is 1-strongly convex)."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 3)) * 2
    X = np.asarray(prior.prox(A, step))

    def f(X):
        return 0.5 * np.sum((X - A) ** 2) + (step * penalty(prior, X) if step else 0.0)

    assert_array_equal(X[forced(prior)], 0)
    for size in (1e-3, 1e-1, 1.0):
        D = np.where(forced(prior), 0.0, rng.normal(size=(3, 3))) * size
        for direction in (D, -D, -X * size, X * size):
            gain = f(X + direction) - f(X) - 0.5 * np.sum(direction**2)
            assert gain >= -1e-12


@every_prior
def test_prox_agrees_with_a_numerical_minimiser(prior):
    A = np.random.default_rng(5).normal(size=(3, 3)) * 2
    step = 0.6
    X = np.asarray(prior.prox(A, step))
    for (beta, a), (_, x) in zip(blocks(prior, A), blocks(prior, X), strict=True):
        if beta == inf:
            assert_array_equal(x, 0)
            continue
        found = optimize.minimize(
            lambda x, a=a, beta=beta: 0.5 * np.sum((x - a) ** 2) + step * block_penalty(beta, x),
            a,
            method="Nelder-Mead",
            options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2000},
        )
        assert_allclose(x, found.x, atol=1e-6)


@every_prior
def test_prox_satisfies_the_subgradient_conditions(prior):
    """(A − X) / step lies in beta ∂‖·‖: beta x/‖x‖ at x ≠ 0, the ball of radius beta at 0."""
    rng, step = np.random.default_rng(2), 0.7
    for _ in range(20):
        A = rng.normal(size=(3, 3)) * 2
        X = np.asarray(prior.prox(A, step))
        for (beta, a), (_, x) in zip(blocks(prior, A), blocks(prior, X), strict=True):
            residual = (a - x) / step
            norm = np.linalg.norm(x)
            if norm == 0:
                assert np.linalg.norm(residual) <= beta * (1 + 1e-12)
            else:
                assert_allclose(residual, beta * x / norm, atol=1e-13)


@every_prior
@by_property
@given(seed=seeds, step=st.floats(0.0, 3.0))
def test_prox_is_firmly_nonexpansive(prior, seed, step):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, 3, 3))
    P = np.asarray(prior.prox(A, step)) - np.asarray(prior.prox(B, step))
    assert np.sum(P**2) <= np.sum(P * (A - B)) + 1e-14


@every_prior
def test_prox_zeros_are_plain(prior):
    A = np.random.default_rng(3).normal(size=(4, 3, 3))
    A[:, 0, 0] = -0.0
    for step in (0.0, 0.5, 10.0):
        X = np.asarray(prior.prox(A, step))
        assert (X == 0).any() and not np.signbit(X[X == 0]).any()


@every_prior
def test_prox_of_step_zero_moves_only_the_forced_zeros(prior):
    A = np.random.default_rng(4).normal(size=(3, 3)) * np.array([1.0, 1e-3, 1e-200])
    assert_array_equal(prior.prox(A, 0.0), np.where(forced(prior), 0.0, A))


@pytest.mark.parametrize("free", [Flat(), Laplace(0.0), GroupLaplace(0.0, by="columns")])
def test_prox_without_a_penalty_is_the_identity(free):
    A = np.random.default_rng(4).normal(size=(3, 3)) * np.array([[1.0], [1e-3], [1e-200]])
    assert_array_equal(free.prox(A, 2.0), A)


def test_prox_takes_one_step_for_each_block():
    A = np.random.default_rng(6).normal(size=(4, 3, 3))
    steps = np.linspace(0.1, 1.0, 4)
    for prior in (Laplace(0.5), GroupLaplace(0.5, by="rows")):
        each = [prior.prox(a, s) for a, s in zip(A, steps, strict=True)]
        assert_allclose(prior.prox(A, steps[:, None, None]), np.stack(each), rtol=1e-15)
    assert_allclose(Laplace(1.0).prox(A[0], PATTERN), Laplace(PATTERN).prox(A[0], 1.0), rtol=1e-15)


@every_prior
def test_nan_stays_visible(prior):
    A = np.full((3, 3), np.nan)
    assert np.isnan(prior.value(A)) and np.isnan(prior.prox(A, 0.3)).all()


@every_prior
def test_precision_is_that_of_the_matrix(prior):
    A = np.eye(3, dtype=np.float32)
    step = jnp.zeros((), float)
    for method in (prior.value, prior.log_prob, lambda A: prior.prox(A, step)):
        assert jax.eval_shape(method, A).dtype == np.float32
        assert jax.eval_shape(method, np.eye(3, dtype=int)).dtype == step.dtype


# ---- density


def test_density_of_independent_laplace_entries():
    A = np.random.default_rng(7).normal(size=(5, 3, 3))
    beta = np.where(np.isinf(PATTERN), 4.0, PATTERN + 0.1)
    expected = stats.laplace(scale=1 / beta).logpdf(A).sum((1, 2))
    assert_allclose(Laplace(beta).log_prob(A), expected, rtol=1e-13)
    assert_allclose(Laplace(2.5).log_prob(A), stats.laplace(scale=0.4).logpdf(A).sum((1, 2)))


def test_free_and_forced_entries_have_no_constant():
    A = feasible(Laplace(PATTERN), np.random.default_rng(8))
    counted = (PATTERN > 0) & np.isfinite(PATTERN)
    expected = stats.laplace(scale=1 / PATTERN[counted]).logpdf(A[counted]).sum()
    assert_allclose(Laplace(PATTERN).log_prob(A), expected, rtol=1e-13)
    assert Laplace(PATTERN).log_prob(A + 1) == -inf
    assert_array_equal(Flat().log_prob(np.ones((4, 3, 3))), np.zeros(4))


@pytest.mark.parametrize("k, sphere", [(2, 2 * np.pi), (3, 4 * np.pi), (5, 8 * np.pi**2 / 3)])
def test_density_of_a_group_integrates_to_one(k, sphere):
    """∫ p = sphere · ∫ r^{k−1} p(r u) dr, with the other groups forced to zero."""
    beta = 1.7
    prior = GroupLaplace([beta] + [inf] * (k - 1), by="rows")
    direction = np.random.default_rng(k).normal(size=k)
    A = np.zeros((k, k))
    A[0] = direction / np.linalg.norm(direction)
    r = np.linspace(0, 60 / beta, 6001)
    p = np.exp(jax.jit(prior.log_prob)(r[:, None, None] * A))
    assert_allclose(sphere * integrate.simpson(r ** (k - 1) * p, x=r), 1, rtol=1e-6)


def test_density_of_a_pair_integrates_to_one_over_the_plane():
    x = np.linspace(-25, 25, 501)
    A = np.zeros((501, 501, 2, 2))
    A[..., 0, 0], A[..., 0, 1] = np.meshgrid(x, x)
    p = np.exp(jax.jit(GroupLaplace([0.9, inf], by="rows").log_prob)(A))
    assert_allclose(integrate.trapezoid(integrate.trapezoid(p, x), x), 1, atol=1e-3)


def test_density_of_an_entry_integrates_to_one():
    x = np.linspace(0, 20, 4001)
    for prior in (Laplace(2.0), GroupLaplace(2.0, by="rows"), GroupLaplace(2.0, by="columns")):
        p = np.exp(jax.jit(prior.log_prob)(x[:, None, None]))
        assert_allclose(2 * integrate.simpson(p, x=x), 1, rtol=1e-8)


def test_groups_are_independent():
    A, beta = np.random.default_rng(9).normal(size=(3, 3)), np.array([0.5, 1.0, 2.0])
    each = [
        GroupLaplace(np.where(np.arange(3) == i, beta, inf), by="rows").log_prob(
            np.where(np.arange(3)[:, None] == i, A, 0.0)
        )
        for i in range(3)
    ]
    assert_allclose(GroupLaplace(beta, by="rows").log_prob(A), np.sum(each), rtol=1e-13)
    assert_allclose(
        GroupLaplace(beta, by="columns").log_prob(A.T), GroupLaplace(beta, by="rows").log_prob(A)
    )


# ---- transformations of JAX


@pytest.mark.parametrize(
    "prior", [Laplace(1.0), Laplace(PATTERN), GroupLaplace(1.0, by="rows")], ids=str
)
def test_a_path_over_beta_compiles_once_and_vmaps(prior):
    A = np.random.default_rng(10).normal(size=(3, 3))
    traces = []

    @jax.jit
    def shrink(prior, A):
        traces.append(None)
        return prior.prox(A, 0.3), prior.log_prob(jnp.where(prior.prox(A, 0.3) == 0, 0.0, A))

    path = [prior.scaled(factor) for factor in (0.5, np.float64(1.0), 2)]
    each = [shrink(p, A) for p in path]
    assert len(traces) == 1
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *path)
    together = jax.vmap(shrink, in_axes=(0, None))(stack, A)
    for i, p in enumerate(path):
        eager = p.prox(A, 0.3), p.log_prob(np.where(p.prox(A, 0.3) == 0, 0.0, A))
        for a, b, c in zip(each[i], eager, [leaf[i] for leaf in together], strict=True):
            assert_allclose(a, b, rtol=1e-14)
            assert_allclose(c, b, rtol=1e-14)


def test_a_prior_prints_as_it_was_written():
    for beta in (2, 2.0, np.float32(2), np.array(2.0)):
        assert repr(Laplace(beta)) == "Laplace(beta=2.0)"
    assert repr(GroupLaplace(1, "rows")) == "GroupLaplace(beta=1.0, by='rows')"


def test_scaling_keeps_the_pattern():
    assert_array_equal(Laplace(PATTERN).scaled(3.0).beta, 3 * PATTERN)
    assert Flat().scaled(2.0).value(np.eye(2)) == 0
    assert replace(GroupLaplace(1.0, by="columns"), beta=2.0).by == "columns"


@every_prior
def test_rebuilding_accepts_what_jax_puts_in(prior):
    leaves, tree = jax.tree.flatten(prior)
    assert type(jax.tree.unflatten(tree, [object()] * len(leaves))) is type(prior)
    again = jax.tree.unflatten(tree, leaves)
    assert_array_equal(again.beta, prior.beta)
    assert repr(again) == repr(prior)


# ---- draws


def draw(prior, key):
    return np.asarray(jax.jit(lambda key: prior.sample(key, sample_shape=(4000,)))(key))


def ks(draws, cdf):
    return stats.kstest(draws, cdf).pvalue


def test_draws_of_laplace_entries():
    beta = np.where(PATTERN == 0, 5.0, PATTERN)
    A = draw(Laplace(beta), jax.random.key(0))
    assert A.shape == (4000, 3, 3)
    assert_array_equal(A[:, np.isinf(beta)], 0)
    assert not np.signbit(A[:, np.isinf(beta)]).any()
    for at in np.argwhere(np.isfinite(beta)):
        i, j = at
        assert ks(A[:, i, j], stats.laplace(scale=1 / beta[i, j]).cdf) > 0.01
    free = A[:, np.isfinite(beta)]
    assert_allclose(np.corrcoef(free.T), np.eye(free.shape[1]), atol=0.08)


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_draws_of_groups(by):
    """Radius ~ Gamma(3, beta); a coordinate of the direction ~ Uniform(−1, 1) (Archimedes)."""
    beta = np.array([0.5, inf, 2.0])
    A = draw(GroupLaplace(beta, by=by), jax.random.key(1))
    A = A if by == "rows" else np.swapaxes(A, 1, 2)
    assert_array_equal(A[:, 1], 0)
    for i in (0, 2):
        radius = np.linalg.norm(A[:, i], axis=-1)
        assert ks(radius, stats.gamma(3, scale=1 / beta[i]).cdf) > 0.01
        for direction in (A[:, i] / radius[:, None]).T:
            assert ks(direction, stats.uniform(-1, 2).cdf) > 0.01
            for way in (direction, np.abs(direction)):  # independent of the radius
                assert abs(stats.spearmanr(way, radius).statistic) < 0.05


def test_size_of_a_draw():
    key = jax.random.key(0)
    one = jax.eval_shape(lambda key: Laplace(1.0).sample(key, 2), key)
    many = jax.eval_shape(
        lambda key: GroupLaplace(np.ones(4), "rows").sample(key, None, (5, 1)), key
    )
    assert (one.shape, many.shape) == ((2, 2), (5, 1, 4, 4))
    with pytest.raises(ValueError, match="n_states is None"):
        Laplace(1.0).sample(key)
    with pytest.raises(
        ValueError, match=r"beta has shape \(3, 3\), which does not fit A, \(2, 2\)"
    ):
        Laplace(PATTERN).sample(key, 2)


# ---- errors at the door


@pytest.mark.parametrize(
    "beta, message",
    [
        (-1.0, r"beta is -1\.0; it must be 0 or more"),
        (np.nan, "beta is nan"),
        (None, "beta is nan"),
        (jnp.array(-2.0), r"beta is -2\.0"),
        ([[1.0, 2.0], [-3.0, 1.0]], r"beta is -3\.0 at index \(1, 0\)"),
        ([1.0, 2.0], r"beta has shape \(2,\).*\(l, l\)"),
        (np.ones((2, 3)), r"beta has shape \(2, 3\)"),
        (np.ones((2, 2, 2)), r"beta has shape \(2, 2, 2\)"),
        (np.ones((0, 0)), r"beta has shape \(0, 0\)"),
        ([[1.0], [1.0, 2.0]], r"beta is \[\[1\.0\], \[1\.0, 2\.0\]\]; give a number"),
        ("strong", "beta is 'strong'; give a number"),
    ],
)
def test_laplace_rejects(beta, message):
    with pytest.raises(ValueError, match=message):
        Laplace(beta)


def test_group_laplace_rejects():
    with pytest.raises(ValueError, match=r"beta has shape \(2, 2\).*\(l,\)"):
        GroupLaplace(np.ones((2, 2)), by="rows")
    with pytest.raises(ValueError, match=r"beta is -1\.0 at index \(1,\)"):
        GroupLaplace([1.0, -1.0], by="rows")
    with pytest.raises(ValueError, match="by is 'row'; it must be 'rows' or 'columns'"):
        GroupLaplace(1.0, by="row")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 4])
def test_beta_of_another_size_is_not_broadcast(size):
    for prior in (Laplace(np.ones((size, size))), GroupLaplace(np.ones(size), by="rows")):
        for call in (prior.value, prior.prox, prior.log_prob):
            with pytest.raises(ValueError, match="does not fit A"):
                call(np.eye(3))


def test_the_shape_of_a_traced_beta_is_checked():
    with pytest.raises(ValueError, match=r"beta has shape \(2,\)"):
        jax.jit(lambda beta: Laplace(beta).value(np.eye(2)))(np.ones(2))


def test_a_prior_does_not_change_with_the_array_it_was_given():
    beta = np.ones((2, 2))
    prior = Laplace(beta)
    beta[0, 0] = 5.0
    assert prior.value(np.eye(2)) == 2
    with pytest.raises(AttributeError):
        prior.beta = 3.0  # type: ignore[misc]


# ---- NumPyro


@pytest.mark.interfaces
@every_prior
def test_distribution_has_the_density_of_the_prior(prior):
    d = prior.distribution(3)
    assert (d.batch_shape, d.event_shape) == ((), (3, 3))
    A = np.stack([feasible(prior, np.random.default_rng(s)) for s in range(4)])
    expected = prior.log_prob(A)
    assert_array_equal(d.log_prob(A), expected)
    assert_array_equal(d.expand((4,)).log_prob(A), expected)
    stack = jax.tree.map(lambda leaf: np.stack([leaf] * 4), d)
    each, back = jax.jit(jax.vmap(lambda d, A: (d.log_prob(A), d)))(stack, A)
    assert_allclose(each, expected, rtol=1e-14)
    assert back.support == d.support and back.event_shape == (3, 3)


@pytest.mark.interfaces
@every_prior
def test_support_holds_the_forced_zeros_and_its_bijection_the_rest(prior):
    support, hidden = prior.distribution(3).support, forced(prior)
    A = np.stack([feasible(prior, np.random.default_rng(s)) for s in range(4)])
    assert support.event_dim == 2 and not support.is_discrete
    assert_array_equal(support(A), [True] * 4)
    assert not support(np.where(np.eye(3) == 1, np.nan, A[0]))
    assert (support == constraints.real_matrix) == (not hidden.any())
    if hidden.any():
        assert not support(np.where(hidden, 1e-9, A[0]))
    transform = biject_to(support)
    assert_array_equal(transform.codomain(A), [True] * 4)
    x = transform.inv(A)
    assert np.size(x) == 4 * (9 - hidden.sum())
    assert transform.inverse_shape((4, 3, 3)) == x.shape
    assert transform.forward_shape(x.shape) == (4, 3, 3)
    assert_array_equal(transform(x), A)
    assert_array_equal(transform.log_abs_det_jacobian(x, A), np.zeros(4))
    assert transform == biject_to(prior.distribution(3).support)


@pytest.mark.interfaces
def test_patterns_compare_by_value():
    support = Laplace(PATTERN).distribution().support
    assert support == Laplace(2 * PATTERN).distribution().support
    assert support != Laplace(PATTERN.T).distribution().support
    assert support != constraints.real_matrix


def model(prior, y=None, site="A"):
    A = numpyro.sample(site, prior.distribution(3))
    if y is not None:
        numpyro.sample("y", dist.Normal(A, 0.5).to_event(2), obs=y)


@pytest.mark.interfaces
def test_nuts_takes_forced_zeros_and_a_flat_prior():
    """A: a Laplace prior alone, with zeros. B: a flat prior and a Gaussian likelihood."""
    beta = np.where(PATTERN == 0, 1.5, PATTERN)
    y = np.random.default_rng(11).normal(size=(3, 3))

    def both():  # one model, as each is compiled
        model(Laplace(beta))
        model(Flat(), y, site="B")

    kernel = infer.NUTS(both)
    mcmc = infer.MCMC(kernel, num_warmup=300, num_samples=2000, num_chains=1, progress_bar=False)
    mcmc.run(jax.random.key(0))
    A, B = (np.asarray(mcmc.get_samples()[site]) for site in "AB")
    assert A.shape == B.shape == (2000, 3, 3)
    free = np.isfinite(beta)
    assert_array_equal(A[:, ~free], 0)
    assert_allclose(np.abs(A).mean(0)[free], 1 / beta[free], rtol=0.15)  # E|a| = 1/beta
    assert_allclose(A.mean(0)[free] * beta[free], 0, atol=0.15)
    assert_allclose(B.mean(0), y, atol=0.06)
    assert_allclose(B.std(0), 0.5, atol=0.06)


@pytest.mark.interfaces
@pytest.mark.parametrize("name", ["flat", "laplace-free", "columns"])
def test_initialisation_finds_a_start(name):
    """By the prior's median, which falls back to a uniform start where there are no draws."""
    prior = PRIORS[name]
    info = infer.util.initialize_model(
        jax.random.key(0),
        model,
        init_strategy=infer.init_to_median,
        model_args=(prior, np.ones((3, 3))),
    )
    z = info.param_info.z
    assert z["A"].size == 9 - forced(prior).sum()
    assert np.isfinite(info.param_info.potential_energy)
    A = np.asarray(info.postprocess_fn(z)["A"])
    normal = stats.norm(A, 0.5).logpdf(1.0).sum()
    assert_allclose(info.param_info.potential_energy, -normal - prior.log_prob(A), rtol=1e-12)


@pytest.mark.interfaces
@pytest.mark.parametrize("name", ["laplace-matrix", "columns"])
def test_predictive_draws_from_a_proper_prior(name):
    prior = PRIORS[name]
    assert prior.is_proper
    predictive = infer.Predictive(model, num_samples=100, parallel=False)
    A = np.asarray(predictive(jax.random.key(2), prior)["A"])
    assert A.shape == (100, 3, 3)
    assert_array_equal((A == 0).all(0), forced(prior))
    assert_array_equal((A == 0).any(0), forced(prior))
    assert len(np.unique(A[:, ~forced(prior)])) == 100 * (~forced(prior)).sum()


@pytest.mark.interfaces
@pytest.mark.parametrize("prior", [Flat(), Laplace(PATTERN), GroupLaplace([0, 1, 2], by="rows")])
def test_an_improper_prior_says_that_it_cannot_be_sampled(prior):
    assert not prior.is_proper
    with pytest.raises(NotImplementedError, match="is flat, and cannot be sampled"):
        infer.Predictive(model, num_samples=2)(jax.random.key(0), prior)
    with pytest.raises(NotImplementedError, match="is flat, and cannot be sampled"):
        prior.sample(jax.random.key(0), 3)


@pytest.mark.interfaces
def test_beta_may_be_a_random_variable():
    """log p(A, beta), and its derivative in beta, need the constant."""

    def hierarchical():
        beta = numpyro.sample("beta", dist.Gamma(2.0, 1.0))
        numpyro.sample("A", Laplace(beta).distribution(3))

    A = np.random.default_rng(12).normal(size=(3, 3))

    def log_density(beta):
        return infer.util.log_density(hierarchical, (), {}, {"A": A, "beta": beta})[0]

    value, slope = jax.jit(jax.value_and_grad(log_density))(1.6)
    expected = stats.gamma(2).logpdf(1.6) + stats.laplace(scale=1 / 1.6).logpdf(A).sum()
    assert_allclose(value, expected, rtol=1e-12)
    assert_allclose(slope, 1 / 1.6 - 1 + 9 / 1.6 - np.abs(A).sum(), rtol=1e-12)
    draws = infer.Predictive(hierarchical, num_samples=20)(jax.random.key(0))
    assert draws["A"].shape == (20, 3, 3) and np.isfinite(draws["A"]).all()
