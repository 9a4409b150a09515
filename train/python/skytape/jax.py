"""The attention methods in JAX: a function that jax.jit, jax.grad and jax.vmap take.

Notation: B batch, H heads, N tokens, D head width.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from . import UsageError, _by_name, _check, _flag, _name, _seed, _texts, _whole, arrays, traits, vjp
from . import attention as _attention

# A callback of JAX waits for its arguments, which threads of JAX's copy. Asynchronous calls occupy them: on
# one core, or from several threads, callbacks would wait for ever. Read once, when JAX begins to compute.
jax.config.update("jax_cpu_enable_async_dispatch", False)


def attention(name: str, q: ArrayLike | None, k: ArrayLike | None, v: ArrayLike,
              mask: ArrayLike | None = None, seed: int | jax.Array = 0, training: bool = False, *,
              x: ArrayLike | None = None, length: int = 0,
              parameters: dict[str, ArrayLike] | None = None, **options: float | str) -> jax.Array:
    """As skytape.attention, on arrays of JAX that may be traced. First derivatives of reverse mode; the CPU
    computes. seed: an int, or a whole number that is traced."""
    arguments = {"v": v, "q": q, "k": k, "x": x}
    _by_name("parameters", parameters)
    given = {key: _array(key, value) for key, value in arguments.items() if value is not None}
    if "v" not in given:
        raise UsageError(f"{_name(name)}: v is missing")
    if not jnp.issubdtype(given["v"].dtype, jnp.floating):
        raise UsageError(f"v: expected floating-point numbers, got {arrays.what(given['v'])}")
    for key, value in given.items():
        if value.dtype != given["v"].dtype:
            raise UsageError(f"{key}: expected floating-point numbers of v's type {given['v'].dtype}, "
                             f"got {arrays.what(value)}")
    if isinstance(seed, jax.Array):
        if seed.shape != () or not jnp.issubdtype(seed.dtype, jnp.integer):
            raise UsageError(f"seed: expected one whole number, got {arrays.what(seed)}")
    else:
        seed = np.array([_seed(seed)], np.uint64).view(np.uint32)
    settings = (_name(name), _flag("training", training), _whole("length", length),
                tuple(sorted(_texts(options).items())))
    own = None if parameters is None else {key: _array(key, value) for key, value in parameters.items()}
    # From within JAX's callback what is wrong would be JAX's error.
    _check(*settings, *(None if of is None else
                        tuple((key, array.shape, array.dtype) for key, array in of.items())
                        for of in (given, own)))
    if mask is not None:
        mask, rows = _array("mask", mask), (given["v"].shape[0], given["v"].shape[2])
        if mask.dtype != bool:
            raise UsageError(f"mask: expected an array of bool [B, N], {arrays.MASK}, "
                             f"got {arrays.what(mask)}")
        if mask.shape != rows:
            raise UsageError(f"mask: expected [B, N] = {list(rows)}, got {arrays.what(mask)}")
    return _apply(settings, given, own, mask, jnp.asarray(seed))


def _array(argument, value):
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{argument}: expected an array of JAX, or what makes one, "
                         f"got {arrays.what(value)}: {error}") from None


def _seed_of(seed):
    """From the two halves of an int, or from a traced whole number."""
    seed = np.asarray(seed)
    return int(seed.view(np.uint64)[0]) if seed.shape else int(seed) % 2**64


def _each(run, outputs, *trees):
    """run() for each entry of the axes that jax.vmap put in front of all arrays, outputs of those shapes."""
    trees = jax.tree.map(np.asarray, trees)
    extra = trees[0]["v"].shape[:-4]
    if not extra:
        return run(*trees)
    found = [run(*jax.tree.map(lambda array: array[index], trees)) for index in np.ndindex(extra)]
    return jax.tree.map(lambda like, *parts: np.stack(parts).reshape(*extra, *like.shape), outputs, *found)


def _called(name, run, outputs, *trees):
    """run(), as a part of a traced function, without derivatives: _with_gradients has the first ones."""
    @jax.custom_jvp
    def call(*trees):
        return jax.pure_callback(functools.partial(_each, run, outputs), outputs, *trees,
                                 vmap_method="broadcast_all")

    @call.defjvp
    def refuse(*_):
        raise NotImplementedError(f"skytape: attention by {name} has first derivatives of reverse mode "
                                  "alone: its backward is written by hand. "
                                  "skytape.torch.attention(..., differentiable=True) has all others")
    return call(*trees)


def _arguments(settings, given, own, mask, seed):
    name, training, length, options = settings
    return {"name": name, "k": None, "q": None, **given, "mask": mask, "seed": _seed_of(seed),
            "training": training, "length": length, "parameters": own, **dict(options)}


def _like(tree):
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), tree)


def _forward(settings, given, own, mask, seed):
    outputs = _like(given["v"])

    def run(*trees):
        return np.asarray(_attention(**_arguments(settings, *trees)))
    return _called(settings[0], run, outputs, given, own, mask, seed)


def _backward(settings, saved, dout):
    given, own, mask, seed = saved
    outputs = _like((given, own))

    def run(given, own, mask, seed, dout):
        gradients = vjp(dout=dout, **_arguments(settings, given, own, mask, seed))[1]
        return jax.tree.map_with_path(
            lambda path, array: np.asarray(gradients.get(path[-1].key, np.zeros_like(array))), (given, own))
    return *_called(settings[0], run, outputs, *saved, dout), None, None


def _forward_kept(settings, *traced):
    """The output and what backward reads. traced: each array with whether its gradient is wanted."""
    arguments = jax.tree.map(lambda array: array.value, traced)
    name, _, _, options = settings
    given, own = traced[:2]
    _, heads, _, width = given["v"].value.shape
    untrained = own and traits.untrained(name, options, heads, width,
                                         given["x"].value.shape[-1] if "x" in given else heads * width)
    for key, array in (own or {}).items():
        if array.perturbed and key in untrained:
            raise UsageError(f"{key}: its gradient is wanted, but {name} does not train it: "
                             "jax.lax.stop_gradient takes it out")
    return _forward(settings, *arguments), arguments


_with_gradients = jax.custom_vjp(_forward, nondiff_argnums=(0,))
_with_gradients.defvjp(_forward_kept, _backward, symbolic_zeros=True)
_apply = jax.jit(_with_gradients, static_argnums=0)  # JAX compiles a callback once, and not in each call
