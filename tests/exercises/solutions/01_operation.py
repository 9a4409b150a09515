def silu(x):
    return x / (1 + np.exp(-x))


def silu_backward(x, dy):
    s = 1 / (1 + np.exp(-x))
    return dy * (s + x * s * (1 - s))
