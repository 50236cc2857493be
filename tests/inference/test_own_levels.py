"""Fits with levels of the sequences' own: what they recover, and what NUTS and the comparison make of them."""

import jax
import numpy as np
import pytest

from sparse_lds.inference import (
    Constraints,
    compare_map_posterior,
    fit_map,
    identifiability_report,
    sample_posterior,
)
from sparse_lds.models import (
    Cohort,
    Laplace,
    LDSParams,
    log_likelihood,
    simulate,
    variance_parts,
    with_own_levels,
)

CORE = LDSParams(
    np.array([[0.6, 0.0], [0.3, 0.5]]), np.eye(2), 0.3 * np.eye(2), 0.1 * np.eye(2), np.zeros(2),
    0.4 * np.eye(2),
)  # fmt: skip
BETWEEN = np.array([[2.0, 0.6], [0.6, 0.5]])
TRUTH = with_own_levels(CORE, np.zeros(2), BETWEEN)
OWN = Constraints.levels(own=True)


@pytest.fixture(scope="module")
def cohort():
    return simulate(jax.random.key(0), TRUTH, [12] * 150).cohort


@pytest.fixture(scope="module")
def fit(cohort):
    return fit_map(cohort, 2, Laplace(2.0), constraints=OWN, priors="weak")


def test_a_fit_recovers_what_differs_between_sequences(cohort, fit):
    """To four standard errors of a covariance of 150 sequences; without own levels persistence takes its place."""
    assert fit.converged and fit.n_states == 2
    error = np.sqrt((np.outer(np.diag(BETWEEN), np.diag(BETWEEN)) + BETWEEN**2) / 150)
    assert (np.abs(np.asarray(fit.params.V1)[2:, 2:] - BETWEEN) < 4 * error).all()
    np.testing.assert_allclose(fit.moving.A, CORE.A, atol=0.15)
    parts = variance_parts(fit.params, 2, cohort)
    np.testing.assert_allclose(sum(parts), np.asarray(cohort.y).var((0, 1)), rtol=0.25)
    without = fit_map(cohort, 2, Laplace(2.0), constraints=Constraints.levels(), priors="weak")
    assert fit.log_likelihood > without.log_likelihood + 20
    assert np.abs(np.linalg.eigvals(without.params.A)).max() > 0.9


def test_a_fit_is_a_mode_over_what_is_free(cohort):
    """Of the likelihood and the distributions themselves: the moving block, and both blocks of V1."""
    few = cohort.take(np.arange(20))
    fit = fit_map(few, 2, Laplace(2.0), constraints=OWN, priors="weak", tol=1e-6)
    assert fit.converged

    @jax.jit
    def at(params):
        found = log_likelihood(params, few).sum() + fit.prior.log_prob(params.A[:2, :2])
        found += fit.priors["Q"].log_prob(params.Q[:2, :2])
        return found + sum(
            fit.priors[name].log_prob(getattr(params, name)) for name in ("R", "pi1", "V1")
        )

    best = float(at(fit.params))
    np.testing.assert_allclose(fit.objective[-1], best, rtol=1e-10)
    rng, free = np.random.default_rng(0), np.zeros((4, 4), bool)
    free[:2, :2] = True
    blocks = {"A": free, "Q": free, "V1": free | free[::-1, ::-1], "R": np.eye(2, dtype=bool)}
    for _ in range(200):
        step, changes = 10 ** rng.uniform(-4, -1.5), {}
        for name in ("A", "Q", "R", "pi1", "V1"):
            x = np.asarray(getattr(fit.params, name))
            E = step * rng.normal(size=x.shape) * (rng.random() < 0.5)
            if name in ("Q", "R", "V1"):  # symmetric, on the scale of the covariance
                sd = np.sqrt(np.diagonal(x))
                E = (E + E.T) * np.outer(sd, sd)
            changes[name] = x + np.where(blocks.get(name, True), E, 0.0)
        assert float(at(fit.params._replace(**changes))) <= best + 1e-6


def test_own_levels_leave_no_change_of_basis_to_levels(fit):
    report = identifiability_report(fit.params, fit.constraints)
    assert report.n_directions == 0 and "no continuous change of basis" in str(report)


@pytest.mark.interfaces
def test_draws_leave_static_states_as_they_are(cohort, fit):
    posterior = sample_posterior(
        jax.random.key(2), cohort, fit, num_samples=60, num_warmup=60, num_chains=2
    )
    A = posterior["posterior"]["A"].values
    assert A.shape == (2, 60, 4, 4)
    fixed = np.ones((4, 4), bool)
    fixed[:2, :2] = False
    assert (A[..., fixed] == np.eye(4)[fixed]).all()
    assert (A[..., :2, :2].std((0, 1)) > 1e-3).all()  # the block moves
    comparison = compare_map_posterior(fit, posterior)
    table = comparison.table
    assert list(table.index) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    flat = A[..., :2, :2].reshape(-1, 4)
    np.testing.assert_allclose(table["mean"], flat.mean(0), rtol=1e-12)
    np.testing.assert_array_equal(table["map"], np.asarray(fit.params.A)[:2, :2].ravel())
    assert ((table["hdi_low"] <= table["mean"]) & (table["mean"] <= table["hdi_high"])).all()
    assert (np.abs(table["mean"] - table["map"]) < 2 * table["sd"]).all()


def test_what_own_levels_know_of_the_model_is_not_sampled(cohort, fit):
    """C is refused; Q and V1 keep the shape of the fit, with static states that have no noise."""
    with pytest.raises(ValueError, match="free names 'C'.*hold it"):
        sample_posterior(jax.random.key(0), cohort, fit, free=("A", "C"))
    options = {"num_warmup": 40, "num_samples": 20, "num_chains": 1, "num_predictive": 0}
    found = sample_posterior(jax.random.key(0), cohort, fit, **options)["posterior"]
    assert set(found.attrs["free"].split()) == {"A", "Q", "R", "pi1", "V1"}
    Q, V1 = found["Q"].values, found["V1"].values
    assert (Q[..., 2:, :] == 0).all() and (Q[..., 0, 0] > 0).all()
    assert (V1[..., :2, 2:] == 0).all() and (np.linalg.eigvalsh(V1) > 0).all()


def test_weak_priors_do_not_invent_levels_of_the_patients_own():
    """In white noise nearly all variance is error; in constant levels nearly all of it is between patients."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(30, 15, 2))
    levels = 3 * rng.normal(size=(30, 1, 2)) + 0.3 * noise
    shares = []
    for y in (noise, levels):
        cohort = Cohort.from_array(y).standardize()
        kept = Constraints.levels(own=True, independent=True)
        fit = fit_map(
            cohort, 2, Laplace.off_diagonal(50.0), constraints=kept, priors="weak", max_iter=200
        )
        parts = variance_parts(fit.params, fit.n_states, cohort)
        shares.append(np.array(parts) / np.sum(parts, axis=0))
    assert (shares[0][0] < 0.1).all() and (shares[0][2] > 0.8).all()
    assert (shares[1][0] > 0.8).all()
