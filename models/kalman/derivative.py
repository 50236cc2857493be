"""The derivative rule of the likelihood, with gaps and without: Fisher's identity.

The gradient of log p(y | Ω) is that of the expected complete log-likelihood at the same Ω, so that one adjoint pass
gives it and nothing is differentiated through the scan of the filter.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def fisher_rule(forward: Callable, value: Callable, score: Callable) -> Callable[[Any, Any], Any]:
    """Return f(params, data) = value(data, forward(params, data)), whose derivative is `score`.

    `score(params, data, forward's result, cotangent)` returns the gradients in the parameters, which are those of
    symmetric arguments for covariances, and in data.y, or None there where nobody may differentiate in the data, or
    data with them in the place of its y, and None for what is not differentiated.
    """

    @jax.custom_vjp
    def f(params, data):
        return value(data, forward(params, data))

    def f_forward(params, data):
        fwd = forward(params, data)
        return value(data, fwd), (params, data, fwd)

    def f_backward(residuals, cotangent):
        params, data, fwd = residuals
        grads, dy = score(params, data, fwd, cotangent)
        if dy is None or isinstance(dy, type(data)):
            return grads, dy
        return grads, jax.tree.map(jnp.zeros_like, data)._replace(y=dy)

    f.defvjp(f_forward, f_backward)
    return f


def summed_rule(value: Callable, value_and_score: Callable) -> Callable[[Any, Any], Any]:
    """Return f(params, data) = value(params, data), a sum over sequences, whose gradient comes in the same pass.

    Nothing of the pass is kept but the gradient: with many sequences this bounds the memory.
    """

    @jax.custom_vjp
    def f(params, data):
        return value(params, data)

    def f_backward(residuals, cotangent):
        return jax.tree.map(lambda g: cotangent * g, residuals), None

    def f_forward(params, data):
        return value_and_score(params, data)

    f.defvjp(f_forward, f_backward)
    return f
