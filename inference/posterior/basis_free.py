"""Eigenvalues, Markov parameters and active states, which no change of basis alters, for any number of draws."""

import numpy as np

ACTIVE = 0.1  # an eigenvalue of at least this modulus counts as an active state
LAGS = 3


def basis_free(A: np.ndarray, C: np.ndarray, V1: np.ndarray) -> dict[str, np.ndarray]:
    """Return quantities of A (..., l, l), C (..., d, l) and V1 (..., l, l) that are the same in every basis.

    - eigenvalues of A, by decreasing modulus (a pair with its positive imaginary part first), and the spectral radius;
    - markov: Cov(y_{1+k}, y_1) without noise, C A^k V1 C' for the lags k = 0, 1, 2;
    - active_states: how many eigenvalues have a modulus of at least 0.1. An eigenvalue near zero is a
      state whose past has no effect.
    """
    values = np.linalg.eigvals(np.asarray(A, float))
    modulus = np.abs(values)
    # moduli of a pair may differ in the last bit, which must not decide the order
    order = np.lexsort((-values.imag, -values.real, -modulus.round(12)), axis=-1)
    values = np.take_along_axis(values, order, -1)
    modulus = np.abs(values)
    blocks, X = [], np.asarray(V1) @ np.swapaxes(np.asarray(C), -1, -2)
    for _ in range(LAGS):
        blocks.append(np.asarray(C) @ X)
        X = np.asarray(A) @ X
    return {
        "eigenvalue_modulus": modulus,
        "eigenvalue_real": values.real,
        "eigenvalue_imag": values.imag,
        "spectral_radius": modulus[..., 0],
        "active_states": (modulus >= ACTIVE).sum(-1).astype(float),
        "markov": np.stack(np.broadcast_arrays(*blocks), axis=-3),
    }
