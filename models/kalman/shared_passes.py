"""The passes over sequences without gaps: filter, adjoint and moments, where one covariance recursion serves them all.

All sequences start from the same prior, so gains and covariances at step t do not depend on the sequence,
whatever its length. Only the means do, and they are linear in the data. Steps go in blocks of b: within a block,
matrices made once for all sequences take the predicted mean at its start, the whitened innovations e, and the
adjoint r from its end to everything else, so that a pass over the sequences is a few products of
moderate size for each block instead of many tiny ones for each step.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Real

from ..linalg import small_product as mul
from ..linalg import sym, whitener
from ..params import LDSParams
from .statistics import InputMoments

if TYPE_CHECKING:
    from .complete import Complete, Terms


class Gains(NamedTuple):
    """What the filter has for all sequences: z_t | y_{1:t-1} has covariance P_t, z_t | y_{1:t} Pf_t; B blocks of b."""

    Pf: Real[Array, "B b l l"]
    W: Real[Array, "B b d d"]  # whitener of the innovations, W S W' = I
    V: Real[Array, "B b d l"]  # W C P: the gain is V'W
    WC: Real[Array, "B b d l"]
    AK: Real[Array, "B b l d"]  # from innovations to the next prediction
    L: Real[Array, "B b l l"]  # A (I - K C)
    logdet: Real[Array, "B b"]  # log |S_t|


class Forward(NamedTuple):
    """Result of the Kalman filter: the fields of `Gains`, and the means of every sequence."""

    Pf: Real[Array, "B b l l"]
    W: Real[Array, "B b d d"]
    V: Real[Array, "B b d l"]
    WC: Real[Array, "B b d l"]
    AK: Real[Array, "B b l d"]
    L: Real[Array, "B b l l"]
    logdet: Real[Array, "B b"]
    m: Real[Array, "B l N"]  # E[z_t | y_{1:t-1}] at the first step of a block, 0 past the end
    e: Real[Array, "B b*d N"]  # whitened innovations W (y - C E[z_t | y_{1:t-1}]), 0 past the end
    u: Real[Array, "B b*p M"] | None = (
        None  # inputs of the first M sequences; m is without B u of its step
    )


def block_length(T: int, l: int, d: int) -> int:
    """Return the number of steps of a block, about that with the fewest multiplications for each sequence."""
    return min(T, max(1, (3 * l + d) // (2 * d)))


def gains(params: LDSParams, T: int) -> Gains:
    """Run the Riccati recursion over T steps, filled up to whole blocks."""
    A, C, Q, R, _, V1, *_ = params
    b = block_length(T, A.shape[0], C.shape[0])
    B = -(-T // b)

    def riccati(P, _):
        CP = mul(C, P)
        W, logdet = whitener(sym(mul(CP, C.T) + R))
        V = mul(W, CP)
        K = mul(V.T, W)
        X = P - mul(V.T, V)
        # the last term is 0 but for rounding (Joseph): it keeps Pf definite when R is nearly singular
        Pf = sym(X - mul(mul(X, C.T) - mul(K, R), K.T))
        return sym(mul(mul(A, Pf), A.T) + Q), (Pf, W, V, logdet)

    _, steps = lax.scan(riccati, V1, length=B * b)
    Pf, W, V, logdet = (x.reshape(B, b, *x.shape[1:]) for x in steps)

    WC, AK = W @ C, A @ (V.mT @ W)
    return Gains(Pf, W, V, WC, AK, A - AK @ C, logdet)


def forward(params: LDSParams, data: "Complete", shared: Gains | None = None) -> Forward:
    """Filter all sequences: one Riccati pass, unless it is given, then the means.

    Inputs enter the means alone. With m the prediction without B u of its step, a block is that of a model without
    inputs on y less what the block's inputs add to it; what they add to the next m is known before the scan.
    """
    T, d, N = data.y.shape
    shared = gains(params, T) if shared is None else shared
    _, W, _, WC, AK, L, _ = shared
    B, b, l, _ = L.shape

    # from (m, y) of a block to the m of its steps, and of the first step after it
    m = [jnp.broadcast_to(jnp.eye(l, dtype=L.dtype), (B, l, l))]
    for j in range(b):
        m.append(jnp.concatenate([L[:, j] @ m[j], AK[:, j]], axis=2))
    e = _cells(W, l) - WC @ _stack(m[:-1], l + b * d)
    blocks = jnp.concatenate([m[b], e.reshape(B, b * d, -1)], axis=1)

    inside, y = _blocks(data.inside, B, b), _blocks(data.y, B, b)
    u, added = None, ()
    if data.u is not None:
        u = _blocks(data.u, B, b)
        response = input_response(params, b)
        now = jnp.kron(jnp.eye(b, dtype=L.dtype), params.D)
        adds = jnp.concatenate(
            [(params.C @ response).reshape(b * d, -1) + now, params.A @ response[-1]]
        )
        adds = jnp.pad(adds @ u, [(0, 0), (0, 0), (0, N - u.shape[2])])
        y, added = y - adds[:, :-l], (adds[:, -l:],)

    def step(m, x):
        block, y, inside, goes_on, *added = x
        out = block @ jnp.concatenate([m, y])
        return sum(added, start=out[:l]) * goes_on, (m, out[l:] * inside)

    xs = blocks, y, jnp.repeat(inside, d, axis=1), _later(inside[:, 0]), *added
    _, (m, e) = lax.scan(step, params.pi1[:, None] * data.unit, xs)
    return Forward(*shared, m, e, u)


def _blocks(x: Array, B: int, b: int) -> Array:
    """Cut x (time first, sequences last) into B blocks of b steps, filled up with zeros: (B, b ..., N)."""
    x = jnp.pad(x, [(0, B * b - x.shape[0])] + [(0, 0)] * (x.ndim - 1))
    return x.reshape(B, -1, x.shape[-1])


def _stack(rows: list[Array], n: int) -> Array:
    """Stack matrices (B, l, .) of the b steps of a block as (B, b, l, n), with zeros on the right."""
    return jnp.stack([jnp.pad(x, [(0, 0), (0, 0), (0, n - x.shape[2])]) for x in rows], axis=1)


def _cells(W: Array, left: int, right: int = 0) -> Array:
    """Place W_j (B, b, i, d) at the columns of the cells of step j, among those of a block."""
    b, d = W.shape[1], W.shape[3]
    pads = [[(0, 0), (0, 0), (left + j * d, right + (b - 1 - j) * d)] for j in range(b)]
    return jnp.stack([jnp.pad(W[:, j], pads[j]) for j in range(b)], axis=1)


def _later(x: Array) -> Array:
    """Shift x by one along the first axis, 0 at the end."""
    return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])


class Lifted(NamedTuple):
    """Matrices (B, b, ., n) that take x = (m, e, r) of a block, (B, n, N), to quantities of its steps."""

    x: Real[Array, "B n N"]  # r: the adjoint that enters the block from its end
    r: Real[Array, "B b l n"]  # to r_t, from the data after step t: E[e_{t+1} | y] = Q r_t
    u: Real[Array, "B b d n"]  # to u_t, likewise: E[v_t | y] = R u_t
    z: Real[
        Array, "B b l n"
    ]  # to z_t = E[z_t | y], less what inputs of the block add: `input_response`
    r0: Real[Array, "l N"]


def backward(params: LDSParams, fwd: Forward) -> Lifted:
    """Run the adjoint pass over the means: r_{t-1} = A'r_t + C'u_t with u_t = W'e_t - K'A'r_t."""
    A = params.A
    Pf, W, V, WC, AK, L, *_ = fwd
    B, b, d, l = V.shape
    n = 2 * l + b * d
    eye = jnp.broadcast_to(jnp.eye(l, dtype=A.dtype), (B, l, l))
    r = [eye]  # r of the steps from the last to the first, and r before the first
    for j in reversed(range(b)):
        r.append(jnp.concatenate([WC[:, j].mT, L[:, j].mT @ r[-1]], axis=2))

    def step(r, x):
        block, e = x
        return block @ jnp.concatenate([e, r]), r

    r0, ends = lax.scan(step, jnp.zeros_like(fwd.m[0]), (r.pop(), fwd.e), reverse=True)
    r = jnp.stack([jnp.pad(x, [(0, 0), (0, 0), (n - x.shape[2], 0)]) for x in r[::-1]], axis=1)
    u = _cells(W.mT, l, l) - AK.mT @ r

    mf = [jnp.concatenate([eye, V[:, 0].mT], axis=2)]
    for j in range(1, b):
        mf.append(jnp.concatenate([A @ mf[-1], V[:, j].mT], axis=2))
    # m + P (r before the step) is the same, but rounds to the size of P_1 = V1, which may be large
    z = _stack(mf, n) + (Pf @ A.T) @ r
    return Lifted(jnp.concatenate([fwd.m, fwd.e, ends], axis=1), r, u, z, r0)


def input_response(params: LDSParams, b: int) -> Array:
    """Return (b, l, b p): what the inputs of a block's steps add to the state of each, A^(j-i) B u_i for i <= j."""
    A, B = params.A, params.B
    l, p = B.shape
    rows = [jnp.pad(B, [(0, 0), (0, (b - 1) * p)])]
    for _ in range(1, b):
        rows.append(jnp.concatenate([A @ rows[-1][:, :p], rows[-1][:, :-p]], axis=1))
    return jnp.stack(rows)


def information(fwd: Forward | Gains, n_t: Array) -> Array:
    """Return Λ_0, ..., Λ_T (T + 1, l, l): the information of later observations on z_{t+1}, summed over sequences.

    Λ_{t-1} = n_t C'S_t^-1 C + L_t' Λ_t L_t with L = A (I - K C) and n_t = Σ_n w_n 1[T_n >= t]. The recursion is
    affine, so the sum over sequences that end at different times obeys the same recursion, and one pass serves all.
    """
    WC, L = _steps(fwd.WC, n_t), _steps(fwd.L, n_t)

    def step(Lam, x):
        L, drive = x
        before = sym(drive + mul(mul(L.T, Lam), L))
        return before, before

    end = jnp.zeros_like(L[0])
    _, Lam = lax.scan(step, end, (L, n_t[:, None, None] * WC.mT @ WC), reverse=True)
    return jnp.concatenate([Lam, end[None]])


def score(
    params: LDSParams, data: "Complete", fwd: Forward, cotangent: "Terms"
) -> tuple[LDSParams, Any]:
    """Return Σ_n w_n ∇ log p(y_n), and the gradients in y, (T, d, N), or in y and inputs as data.

    The cotangent gives the weights w_n, and n_t, how many sequences reach step t, with their weights.
    """
    weights, n_t = -2 * cotangent.squares, -2 * cotangent.constants
    back = backward(params, fwd)
    x, r, u, *_ = back
    grads, by_step = summed_score(
        params, data, fwd, back, lambda x: x * weights[: x.shape[-1]], n_t
    )
    A = params.A
    B, b, d, n = u.shape
    dy = -(u.reshape(B, b * d, n) @ x) * weights
    dy = dy.reshape(B * b, d, -1)[: data.y.shape[0]]
    if by_step is None or data.u is None:
        return grads, dy
    l = A.shape[0]
    ru_u = _same_step(by_step, 0, params.B.shape[1])
    by_B = A.T @ ru_u[:l] + params.C.T @ ru_u[l:]  # E[e_t | y] = Q (A'r_t + C'u_t)
    by_u = (A @ params.B).T @ r + (params.C @ params.B + params.D).T @ u
    M = data.u.shape[2]
    du = (by_u.reshape(B, -1, n) @ x[..., :M]) * weights[:M]
    du = du.reshape(B * b, -1, M)[: data.y.shape[0]]
    return (
        grads._replace(B=by_B, D=ru_u[l:]),
        jax.tree.map(jnp.zeros_like, data)._replace(y=dy, u=du),
    )


def summed_score(
    params: LDSParams,
    data: "Complete",
    fwd: Forward,
    back: Lifted,
    weighted: Callable[[Array], Array],
    n_t: Array,
) -> tuple[LDSParams, Array | None]:
    """Return Σ_n w_n ∇ log p(y_n) by Fisher's identity, less the part of inputs, and the sums that this part needs.

    With E[e_{t+1} | y] = Q r_t and E[v_t | y] = R u_t the inverses of Q and R cancel from ∂/∂A = Q^-1 E Σ e_{t+1} z_t'
    and the other gradients. The sequences enter through the moments of x, in which r, u and z are linear.
    """
    A = params.A
    l = A.shape[0]
    x, r, u, z, r0 = back
    b = u.shape[1]
    ru = jnp.concatenate([r, u], axis=2)
    xw = weighted(x[:, l:])  # r and u take nothing from m, nor from inputs
    total = _sum(ru[..., l:], xw @ x.mT, jnp.concatenate([z, ru], axis=2))
    z_part, ru_part = total[:, :l], total[:, l:]
    by_step = None
    if fwd.u is not None:
        by_step = _with_inputs(ru[..., l:], xw, fwd.u)
        z_part = z_part + jnp.einsum("tiq,tjq->ij", by_step, input_response(params, b))

    Lam = information(fwd, n_t)
    Pf, W, V, AK = (_steps(y, n_t) for y in (fwd.Pf, fwd.W, fwd.V, fwd.AK))
    K = V.mT @ W
    Lam0, Lam, n_t = Lam[0], Lam[1:], n_t[:, None, None]
    LamA = Lam @ A
    KLam = AK.mT @ LamA
    grads = LDSParams(
        A=z_part[:l] - (LamA @ Pf).sum(0),
        C=z_part[l:] + (KLam @ Pf - n_t * K.mT).sum(0),
        Q=0.5 * (ru_part[:l, :l] - Lam.sum(0)),
        R=0.5 * (ru_part[l:, l:] - (n_t * W.mT @ W + KLam @ K).sum(0)),
        pi1=r0 @ weighted(data.unit),
        V1=0.5 * (weighted(r0) @ r0.T - Lam0),
    )
    return grads, by_step


def moments(
    params: LDSParams, data: "Complete", fwd: Forward
) -> tuple[tuple[Array, ...], InputMoments | None]:
    """Return the sums z1, M1, S00, S10, Szz, Syz of `ExpectedStatistics`, and those of states with inputs."""
    A, C, Q, R, *_ = params
    n_t = data.n_t
    l = A.shape[0]
    b = fwd.V.shape[1]
    x, r, u, z, _ = backward(params, fwd)
    xw = data.weighted(x)
    lifts = jnp.concatenate([r, u, z], axis=2)
    total = _sum(z, xw @ x.mT, lifts).T
    z1, Szu, S0u = z[0, 0] @ x[0], None, None
    if fwd.u is not None:
        p = params.B.shape[1]
        response = input_response(params, b)
        after = jnp.concatenate([fwd.u, _later(fwd.u[:, :p])], axis=1)  # and the next block's first
        by_step = _with_inputs(lifts, xw, after)
        uu = (data.weighted(fwd.u) @ after.mT).sum(0)
        zu = (
            by_step[:, -l:] + response @ uu
        )  # (b, l, (b + 1) p): Σ z_t u' of the inputs of the block
        more = jnp.einsum("tiq,tjq->ij", by_step[..., :-p], response)
        total = total + more
        total = total.at[-l:].add(jnp.einsum("tiq,tjq->ij", response, zu[..., :-p]))
        Szu, S0u = _same_step(zu, 0, p), _same_step(zu, 1, p)
        z1 = z1.at[:, : fwd.u.shape[2]].add(params.B @ fwd.u[0, :p])
    rz, uz, zz = total[:l], total[l:-l], total[-l:]

    # zz includes the steps between a sequence's end and that of its block, where z is A^s z_last after s steps
    last = data.inside.sum(0).astype(int) - 1
    z_last = _last_states(params, fwd, x, z, last)
    reach = jnp.arange(b)[:, None] < b - last % b  # (b, N), step j + s is in the block
    zz_last = data.weighted(z_last * reach.astype(x.dtype)[:, None]) @ z_last.T  # (b, l, l)
    past = jnp.zeros_like(A)
    for s in reversed(range(1, b)):
        past = A @ (zz_last[s] + past) @ A.T
    zz = zz - past

    # Cov[z_t | y] summed over the sequences that reach t; a sequence that ends at t has no part in Λ_t
    Lam = information(fwd, n_t)[1:]
    Pf, W, V, AK = (_steps(y, n_t) for y in (fwd.Pf, fwd.W, fwd.V, fwd.AK))
    APf = A @ Pf
    LamAPf = Lam @ APf
    taken = jnp.einsum("tij,tik->jk", jnp.concatenate([APf, AK], axis=2), LamAPf)
    cov1 = n_t[0] * Pf[0] - APf[0].T @ LamAPf[0]
    cov, cov00 = (jnp.einsum("t,tij->ij", w, Pf) - taken[:l] for w in (n_t, _later(n_t)))
    ez = rz - LamAPf.sum(0)  # Q^-1 Σ E[e_t z_{t-1}']
    vz = uz + taken[l:] - jnp.einsum("tji,tjk->ik", n_t[:, None, None] * W, V)  # R^-1 Σ E[v_t z_t']
    S00, Szz = zz - zz_last[0] + cov00, zz + cov
    M1 = data.weighted(z1) @ z1.T + cov1
    S10, Syz = A @ S00 + Q @ ez, C @ Szz + R @ vz
    sums = z1 @ data.weighted(data.unit), M1, S00, S10, Szz, Syz
    if Szu is None or S0u is None or data.u is None:
        return sums, None
    z1u = z1[:, : data.u.shape[2]] @ data.weighted(data.u[0]).T
    S10, Syz = S10 + params.B @ S0u.T, Syz + params.D @ Szu.T
    return (*sums[:3], S10, Szz, Syz), InputMoments(z1u, S0u, Szu)


def _last_states(params: LDSParams, fwd: Forward, x: Array, z: Array, last: Array) -> Array:
    """Return E[z | y] (l, N) of each sequence's last step; -1 is the last of a sequence of length 0, where x is 0."""
    b = z.shape[1]
    block, j = last // b, last % b
    end = last.max()
    u = fwd.u
    response: Any = None if u is None else input_response(params, b)

    def together():
        found = z[end // b, end % b] @ x[end // b]
        if u is None:
            return found
        return found.at[:, : u.shape[2]].add(response[end % b] @ u[end // b])

    def each():
        found = (z[block, j].mT * x[block, :, jnp.arange(last.size)][..., None]).sum(1).T
        if u is None:
            return found
        M = jnp.arange(u.shape[2])
        return found.at[:, M].add((response[j[M]].mT * u[block[M], :, M][..., None]).sum(1).T)

    return lax.cond(((last == end) | (last < 0)).all(), together, each)


def _with_inputs(a: Array, xw: Array, u: Array) -> Array:
    """Return Σ_B a_t x u' (b, i, q) over blocks and sequences, for lifts a (B, b, i, n) and inputs u (B, q, M)."""
    B, b, i, n = a.shape
    found = a.reshape(B, b * i, n) @ (xw[..., : u.shape[2]] @ u.mT)
    return found.sum(0).reshape(b, i, -1)


def _same_step(a: Array, lag: int, p: int) -> Array:
    """Return Σ_t a_t over the columns of the inputs `lag` steps after t, for a (b, i, q) with the inputs of a block."""
    return jnp.stack([x[:, (j + lag) * p : (j + lag + 1) * p] for j, x in enumerate(a)]).sum(0)


def _sum(a: Array, G: Array, b: Array) -> Array:
    """Return Σ_t a_t G b_t' with the G of the block.

    The sum over t is part of the product. As a sum after it, XLA on the CPU (jaxlib 0.10.2) makes one kernel of both
    products and the sum, which from some 40 states on is wrong: `test_large_models_are_exact`.
    """
    aG = a.reshape(a.shape[0], -1, a.shape[3]) @ G
    return jnp.einsum("Btin,Btjn->ij", aG.reshape(*a.shape[:3], -1), b)


def _steps(x: Array, n_t: Array) -> Array:
    """Reshape (B, b, ...) to (T, ...)."""
    return x.reshape(-1, *x.shape[2:])[: n_t.size]
