def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_backward(q, k, v, p, scale, dout):
    dp = dout @ v.T  # (3)
    ds = p * (dp - np.sum(p * dp, axis=-1, keepdims=True))  # (2)
    return scale * ds @ k, scale * ds.T @ q, p.T @ dout  # (1), (1), (3)
