def from_the_left(q, k, v, s):
    return s * (q @ k.T) @ v


def from_the_right(q, k, v, s):
    return q @ (s * (k.T @ v))


def backward(q, k, v, s, dout):
    dt = q.T @ dout  # (2)
    return dout @ (s * (k.T @ v)).T, s * v @ dt.T, s * k @ dt  # (2), (1), (1)
