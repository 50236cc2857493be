"""The contract of a prior: what each answers agrees with what the others answer, for ours and for a user's own.

`ElasticNet` is defined here, in a file of its own as a user would, and goes all the way: fits, accelerated and plain, a
path, a posterior, the comparison, files.
"""

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from scipy import integrate, optimize

from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import (
    compare_map_posterior,
    diagnose,
    fit_map,
    regularization_path,
    sample_posterior,
)
from sparse_lds.models import (
    Flat,
    GammaLaplace,
    GroupLaplace,
    Horseshoe,
    Laplace,
    LDSParams,
    Penalty,
    Piece,
    Prior,
    log_likelihood,
    simulate,
)
from sparse_lds.models.priors import Embedded


@dataclass(frozen=True)
class ElasticNet(Penalty):
    """p(A) ∝ exp(-Σ (beta |A_ij| + ridge A_ij² / 2))."""

    beta: float
    ridge: float
    blocks = "entries"
    symmetry = "signed permutations"

    def value(self, A):
        A = jnp.asarray(A)
        return self.beta * jnp.abs(A).sum((-2, -1)) + self.ridge / 2 * (A**2).sum((-2, -1))

    def prox(self, A, step=1.0):
        A = jnp.asarray(A)
        shrunk = jnp.sign(A) * jnp.maximum(jnp.abs(A) - step * self.beta, 0.0)
        return jnp.where(shrunk == 0, 0.0, shrunk / (1 + step * self.ridge))

    def log_constant(self, n_states):
        ratio = self.beta / jnp.sqrt(self.ridge)
        tails = jax.scipy.stats.norm.logcdf(-ratio) + ratio**2 / 2
        return -(n_states**2) * (jnp.log(2.0) + 0.5 * jnp.log(2 * jnp.pi / self.ridge) + tails)

    def piece(self, A, pull):
        signs = np.where(A != 0, np.sign(A), np.where(pull >= 0, 1.0, -1.0))

        def evaluate(A):
            value = (self.beta * signs * A + self.ridge / 2 * A**2).sum()
            return float(value), self.beta * signs + self.ridge * A

        lower, upper = np.where(signs > 0, 0.0, -np.inf), np.where(signs > 0, np.inf, 0.0)
        return Piece(lower, upper, evaluate)

    def scaled(self, factor):
        return ElasticNet(factor * self.beta, factor * self.ridge)

    def beta_max(self, gradient):
        return jnp.abs(gradient).max() / self.beta

    def curvature(self, n_states):
        return np.full((n_states, n_states), float(self.beta) ** 2 / 2)


@dataclass(frozen=True)
class PlainRidge(Penalty):
    """The least that a penalty defines."""

    ridge: float

    def value(self, A):
        return self.ridge / 2 * (jnp.asarray(A) ** 2).sum()

    def prox(self, A, step=1.0):
        return jnp.asarray(A) / (1 + step * self.ridge)

    def log_constant(self, n_states):
        return n_states**2 / 2 * jnp.log(self.ridge / (2 * jnp.pi))


inf = np.inf
PENALTIES = {
    "flat": Flat(),
    "laplace": Laplace(1.3),
    "laplace-matrix": Laplace(np.array([[2.0, inf, 0.7], [0.0, 1.0, 3.0], [inf, 0.5, 0.0]])),
    "rows": GroupLaplace(0.8, by="rows"),
    "columns": GroupLaplace([0.5, inf, 2.0], by="columns"),
    "with inputs": Laplace(1.3, beta_B=2.0),
    "rows, with inputs": GroupLaplace(0.8, by="rows", beta_B=[1.0, 2.0]),
    "off-diagonal": Laplace.off_diagonal(1.3),
    "persistence": Laplace.towards_persistence(1.3),
    "centre": Laplace(
        np.array([[2.0, inf, 0.7], [0.0, 1.0, 3.0], [inf, 0.5, 0.0]]),
        center=np.array([[0.9, 0.2, 0.0], [0.0, 0.5, -0.1], [-0.3, 0.0, 0.0]]),
    ),
    "rows off the diagonal": GroupLaplace.off_diagonal(0.8, by="rows"),
    "columns to persistence": GroupLaplace.towards_persistence(0.8, by="columns"),
    "embedded": Embedded(Laplace(1.3), 1),
    "embedded, to persistence": Embedded(Laplace.towards_persistence(0.7), 2),
    "embedded rows": Embedded(GroupLaplace(0.8, by="rows"), 1),
    "elastic net": ElasticNet(1.3, 0.8),
    "ridge": PlainRidge(2.0),
}
PRIORS = {**PENALTIES, "gamma-laplace": GammaLaplace(2.0, 1.0), "horseshoe": Horseshoe(0.2)}
every_penalty = pytest.mark.parametrize("prior", PENALTIES.values(), ids=PENALTIES.keys())
every_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())
L = 3


def some_A(prior, seed=0, scale=1.0):
    A = scale * np.random.default_rng(seed).normal(size=(L, L))
    return np.where(prior.forced(L), prior.center_of(L), A)


def undefined(method, *arguments):
    """Whether a prior leaves out what it may leave out, saying so by name."""
    try:
        method(*arguments)
    except NotImplementedError as error:
        assert method.__name__ in str(error)
        return True
    return False


@every_penalty
def test_prox_is_the_minimiser(prior):
    """By scipy on each coordinate in turn would do for entries only: here over all free entries at once."""
    A, step = some_A(prior, 1, 2.0), 0.4
    X = np.asarray(prior.prox(A, step))
    assert np.all(X[prior.forced(L)] == prior.center_of(L)[prior.forced(L)])
    free = ~prior.forced(L)

    def objective(x):
        Y = prior.center_of(L)
        Y[free] = x
        return 0.5 * np.sum((Y - A) ** 2) + step * float(prior.value(Y))

    at_X = objective(X[free])
    found = optimize.minimize(
        objective, X[free] + 0.01, method="Powell", options={"xtol": 1e-9, "ftol": 1e-14}
    )
    assert at_X <= found.fun + 1e-9
    np.testing.assert_allclose(X[free], found.x, atol=2e-3)


@every_penalty
def test_a_step_for_each_block_is_the_prox_of_each_block(prior):
    """f(X) = Σ_g ‖X_g - A_g‖² / (2 step_g) + value(X) has its minimum at the prox."""
    shape = {"entries": (L, L), "rows": (L, 1), "columns": (1, L), "matrix": ()}[prior.blocks]
    rng = np.random.default_rng(2)
    A, step = some_A(prior, 3, 2.0), rng.uniform(0.1, 1.0, shape)
    X = np.asarray(prior.prox(A, step))

    def f(Y):
        return 0.5 * np.sum((Y - A) ** 2 / step) + float(prior.value(Y))

    for _ in range(200):
        D = np.where(prior.forced(L), 0.0, rng.normal(size=(L, L))) * 10 ** rng.uniform(-4, 0)
        assert f(X + D) >= f(X) - 1e-12


@every_penalty
def test_density_is_constant_less_penalty_and_integrates_to_one(prior):
    A = some_A(prior, 4)
    constant, value = float(prior.log_constant(L)), float(prior.value(A))
    np.testing.assert_allclose(float(prior.log_prob(A)), constant - value, rtol=1e-12)
    if prior.is_proper and not any(map(np.ndim, jax.tree.leaves(prior))):  # one state: one entry
        size = 1 + getattr(prior, "n_static", 0)

        def density(a):
            A = prior.center_of(size)
            A[0, 0] = a
            return np.exp(float(prior.log_prob(A)))

        total = integrate.quad(density, -40, 40, points=[0])
        assert abs(total[0] - 1) < 1e-6


@every_penalty
def test_a_piece_is_the_penalty_between_its_bounds(prior):
    rng = np.random.default_rng(5)
    A = some_A(prior, 6)
    A = np.where(rng.random((L, L)) < 0.4, prior.center_of(L), A)
    pull = rng.normal(size=(L, L))
    if undefined(prior.piece, A, pull):
        return
    piece = prior.piece(A, pull)
    assert (piece.lower <= A).all() and (piece.upper >= A).all()
    moving = piece.upper > piece.lower
    assert not moving[prior.forced(L)].any()
    M = prior.center_of(L)
    at = A == M  # an entry at the centre may leave it to the side that it is pulled to
    assert (pull * (np.clip(M + pull, piece.lower, piece.upper) - M) >= 0)[at].all()
    for _ in range(5):  # points inside, by a step away from zero to the side that is open
        side = np.where(
            np.isfinite(piece.lower),
            1.0,
            np.where(np.isfinite(piece.upper), -1.0, np.sign(A - M) + (A == M)),
        )
        Y = np.where(moving, A + side * rng.uniform(0.1, 1.0, (L, L)), A)
        value, gradient = piece.evaluate(Y)
        np.testing.assert_allclose(value, float(prior.value(Y)), rtol=1e-12)
        for i, j in np.argwhere(moving):
            E = np.zeros((L, L))
            E[i, j] = 1e-6
            slope = (float(prior.value(Y + E)) - float(prior.value(Y - E))) / 2e-6
            assert abs(slope - gradient[i, j]) < 1e-6 * (1 + abs(slope))


@every_penalty
def test_beta_max_is_where_zero_stops_being_optimal(prior):
    """The centre M is optimal for g + h iff prox(M - step ∇g(M), step) = M; free entries are left out."""
    G = np.where(prior.penalised(L), np.random.default_rng(7).normal(size=(L, L)), 0.0)
    if not prior.penalised(L).any() or undefined(prior.scaled, 1.0) or undefined(prior.beta_max, G):
        return
    largest = float(prior.beta_max(G))
    for factor, zero in ((1.001, True), (0.999, False)):
        M = prior.center_of(L)
        X = np.asarray(prior.scaled(factor * largest).prox(M - 0.3 * G, 0.3))
        assert prior.at_center(X).all() == zero


@every_penalty
def test_scaling_multiplies_the_penalty(prior):
    if not undefined(prior.scaled, 2.0):
        A = some_A(prior, 8)
        np.testing.assert_allclose(prior.scaled(2.5).value(A), 2.5 * prior.value(A), rtol=1e-12)
        assert (prior.scaled(2.5).forced(L) == prior.forced(L)).all()


@every_penalty
def test_what_is_free_has_no_penalty(prior):
    for i, j in np.argwhere(~prior.penalised(L)):
        A = prior.center_of(L)
        A[i, j] += 3.0
        assert float(prior.value(A)) == 0
    for i, j in np.argwhere(prior.penalised(L) & ~prior.forced(L)):
        A = prior.center_of(L)
        A[i, j] += 3.0
        assert 0 < float(prior.value(A)) < inf
    assert prior.is_flat == (not prior.penalised(L).any())
    full = prior.expanded(L, np.float64)
    np.testing.assert_allclose(full.value(some_A(prior)), prior.value(some_A(prior)), rtol=1e-14)


@every_penalty
def test_symmetries_are_symmetries(prior):
    rng, A = np.random.default_rng(9), some_A(prior, 10)
    for _ in range(20):
        order = rng.permutation(L) if prior.symmetry == "signed permutations" else np.arange(L)
        signs = rng.choice([-1.0, 1.0], L) if prior.symmetry != "none" else np.ones(L)
        W = np.eye(L)[order] * signs
        np.testing.assert_allclose(prior.value(W @ A @ W.T), prior.value(A), rtol=1e-12)


@every_prior
def test_files_and_pytrees_keep_a_prior(prior):
    again = Prior.from_dict(json.loads(json.dumps(prior.to_dict())))
    assert type(again) is type(prior) and again.to_dict() == prior.to_dict()
    leaves, tree = jax.tree.flatten(prior)
    assert jax.tree.unflatten(tree, leaves).to_dict() == prior.to_dict()
    assert jax.tree.unflatten(tree, [object()] * len(leaves)) is not None
    moved = jax.jit(lambda p: jax.tree.map(lambda x: 1 * x, p))(prior)
    assert type(moved) is type(prior)


def test_a_file_with_an_unknown_or_odd_prior_is_refused():
    with pytest.raises(ValueError, match="'Cauchy' is not known; known are .*ElasticNet.*Laplace"):
        Prior.from_dict({"kind": "Cauchy", "beta": 1.0})
    with pytest.raises(ValueError, match="not known"):
        Prior.from_dict({"kind": "BlockPenalty", "beta": 1.0})
    with pytest.raises(ValueError, match="Laplace is described by"):
        Prior.from_dict({"kind": "Laplace", "beta": 1.0, "by": "rows"})
    with pytest.raises(ValueError, match="GroupLaplace is described by"):
        Prior.from_dict({"kind": "GroupLaplace", "beta": 1.0})
    with pytest.raises(TypeError, match="a prior named Laplace already"):
        type("Laplace", (Penalty,), {"__module__": "elsewhere"})


@pytest.mark.interfaces
@every_prior
def test_a_site_has_the_density_of_the_prior(prior):
    """Sites set to `start(A)` give A; and for a prior that is one distribution, its density."""
    A = jnp.asarray(some_A(prior, 11))
    values = prior.start(A)
    model = handlers.seed(
        handlers.substitute(lambda: prior.site(L), data=values), jax.random.key(0)
    )
    trace = handlers.trace(model).get_trace()
    np.testing.assert_allclose(trace["A"]["value"], A, rtol=1e-12)
    sampled = {name for name, site in trace.items() if site["type"] == "sample"}
    assert sampled == set(values) and set(prior.site_dims) < {*sampled, "A"}
    if sampled == {"A"}:
        density = trace["A"]["fn"].log_prob(jnp.stack([A, 2 * A]))
        np.testing.assert_allclose(density, [prior.log_prob(A), prior.log_prob(2 * A)], rtol=1e-12)


# ---- a user's own prior, all the way

TRUTH = LDSParams(
    np.array([[0.8, 0.0], [0.3, 0.5]]),
    np.eye(2),
    0.2 * np.eye(2),
    0.1 * np.eye(2),
    np.zeros(2),
    np.eye(2),
)


@pytest.fixture(scope="module")
def cohort():
    return simulate(jax.random.key(0), TRUTH, [15] * 20).cohort


def gradient_of(fit, cohort):
    at = jax.grad(lambda A: log_likelihood(fit.params._replace(A=A), cohort).sum())
    return np.asarray(at(fit.params.A))


def test_an_own_prior_is_fitted(cohort):
    """To the subgradient conditions of its definition; plain EM is on its way to the same optimum."""
    prior = ElasticNet(12.0, 3.0)
    options = {"init": TRUTH, "hold": ("C",), "tol": 1e-7, "max_iter": 3000}
    fast, plain = (fit_map(cohort, 2, prior, accelerate=yes, **options) for yes in (True, False))
    assert fast.converged and fast.steps["quasi-newton"] > 0 and fast.n_iter < plain.n_iter / 10
    assert (np.diff(fast.objective) >= -1e-9).all() and (np.diff(plain.objective) >= -1e-9).all()
    assert -1e-6 <= fast.objective[-1] - plain.objective[-1] < 0.1
    np.testing.assert_allclose(fast.params.A, plain.params.A, atol=5e-3)
    A, slope = np.asarray(fast.params.A), gradient_of(fast, cohort)
    on = A != 0
    assert on.any() and not on.all()
    np.testing.assert_allclose(slope[on], 12 * np.sign(A[on]) + 3 * A[on], rtol=1e-3)
    assert (np.abs(slope[~on]) <= 12 * (1 + 1e-6)).all()
    objective = float(log_likelihood(fast.params, cohort).sum() + prior.log_prob(A))
    np.testing.assert_allclose(fast.objective[-1], objective, rtol=1e-10)


def test_an_own_prior_has_a_path(cohort):
    rest = ("C", "Q", "R", "pi1", "V1")
    zero = TRUTH._replace(A=np.zeros((2, 2)))
    path = regularization_path(cohort, 2, ElasticNet(2.0, 1.0), n_betas=4, init=zero, hold=rest)
    nonzero = path.table()["nonzero"].to_numpy()
    assert nonzero[0] == 0 and nonzero[-1] == 4 and (np.diff(nonzero) >= 0).all()


@pytest.mark.interfaces
def test_an_own_prior_is_sampled_compared_and_saved(cohort, tmp_path):
    fit = fit_map(cohort, 2, ElasticNet(12.0, 3.0), init=TRUTH, hold=("C",))
    posterior = sample_posterior(
        jax.random.key(1), cohort, fit, num_samples=200, num_chains=2, num_warmup=100
    )
    table = compare_map_posterior(fit, posterior).table
    assert (np.abs(table["mean"] - table["map"]) < 2 * table["sd"]).all()
    assert "R-hat" in str(diagnose(posterior))
    again = load_fit(save_fit(tmp_path / "fit.json", fit))
    assert again.prior == fit.prior and again.constraints == fit.constraints
    assert str(again) == str(fit)


@pytest.mark.interfaces
def test_three_methods_are_enough_for_plain_fits_and_nuts(cohort):
    options = {"init": TRUTH, "hold": ("C", "Q", "R", "pi1", "V1"), "max_iter": 500}
    with pytest.raises(NotImplementedError, match="PlainRidge has no `piece`.*accelerate=False"):
        fit_map(cohort, 2, PlainRidge(30.0), **options)
    fit = fit_map(cohort, 2, PlainRidge(30.0), accelerate=False, **options)
    np.testing.assert_allclose(gradient_of(fit, cohort), 30 * np.asarray(fit.params.A), atol=0.05)
    posterior = sample_posterior(
        jax.random.key(2), cohort, fit, num_samples=200, num_chains=2, num_warmup=100
    )
    mean = posterior["posterior"]["A"].values.mean((0, 1))
    np.testing.assert_allclose(mean, fit.params.A, atol=0.05)
    with pytest.raises(NotImplementedError, match="PlainRidge has no `scaled`"):
        regularization_path(cohort, 2, PlainRidge(1.0), betas=[1.0], init=TRUTH)
    with pytest.raises(TypeError, match="only NUTS can read"):
        fit_map(cohort, 2, Horseshoe())  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class NonNegative(Laplace):
    """A user's own kind of a prior of ours: links below zero are not allowed."""

    def prox(self, A, step=1.0):
        return jnp.maximum(super().prox(A, step), 0.0)


def test_a_class_derived_from_one_of_ours_is_the_one_that_is_fitted(cohort):
    A = TRUTH.A * np.array([[1.0, 1.0], [-1.0, 1.0]])
    turned = simulate(jax.random.key(3), TRUTH._replace(A=A), [15] * 20).cohort
    options = {"init": TRUTH, "hold": ("C",), "accelerate": False, "max_iter": 30}
    assert np.asarray(fit_map(turned, 2, Laplace(0.1), **options).params.A).min() < -0.1
    assert np.asarray(fit_map(turned, 2, NonNegative(0.1), **options).params.A).min() >= 0


# ---- a prior on the leading block


def test_a_prior_on_a_block_is_that_of_the_block():
    """Elsewhere A is the identity, in draws as in the prox; what has sites of its own is refused."""
    block, prior = Laplace(1.3), Embedded(Laplace(1.3), 2)
    A = np.eye(4)
    A[:2, :2] = np.random.default_rng(0).normal(size=(2, 2))
    np.testing.assert_allclose(prior.log_prob(A), block.log_prob(A[:2, :2]), rtol=1e-12)
    outside = np.ones((4, 4), bool)
    outside[:2, :2] = False
    draws = np.asarray(prior.sample(jax.random.key(0), 4, (500,)))
    for X in (*draws[:5], prior.prox(A + 0.3, 0.5), prior.center_of(4)):
        np.testing.assert_array_equal(np.asarray(X)[outside], np.eye(4)[outside])
    np.testing.assert_allclose(np.abs(draws[:, :2, :2]).mean(), 1 / 1.3, rtol=0.1)
    np.testing.assert_array_equal(prior.forced(4), outside)
    np.testing.assert_array_equal(prior.penalised(4), ~outside)
    assert prior.is_proper and not Embedded(Flat(), 2).is_proper
    with pytest.raises(TypeError, match="Horseshoe.*give a Penalty"):
        Embedded(Horseshoe(0.2), 2)
