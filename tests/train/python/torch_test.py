"""The attention methods in PyTorch: gradcheck of all, a module beside nn.MultiheadAttention."""
import unittest

try:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, scaled_dot_product_attention
    import skytape.torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

import skytape

B, H, N, D = 1, 2, 64, 4


def normal(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sequences(count, seed, tokens=64):
    """Like the first tokens of ListOps: digits among symbols; the class is the largest digit there."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, 15, (count, tokens), generator=random)
    digits = torch.randint(0, 10, (count, 4), generator=random)
    ids.scatter_(1, torch.rand(count, tokens, generator=random).argsort(1)[:, :4], digits)
    return ids, digits.max(1).values


class Model(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.embed, self.attend, self.norm = nn.Embedding(15, 32), attention, nn.LayerNorm(32)
        self.head = nn.Linear(32, 10)

    def forward(self, ids):
        x = self.embed(ids)
        theirs = isinstance(self.attend, nn.MultiheadAttention)
        y = self.attend(x, x, x, need_weights=False)[0] if theirs else self.attend(x)
        return self.head(self.norm(x + y).amax(1))


class Torch(unittest.TestCase):
    def test_gradcheck_passes_for_every_method_in_every_sample_setting(self):
        for row in skytape.methods():
            name = row["name"]
            for options in row["samples"]:
                with self.subTest(name, **options):
                    try:
                        own = skytape._engine.initial(name, options, H, D, N, H * D, 5)
                    except skytape.UsageError:
                        continue  # a setting that these sizes cannot serve
                    own = {key: torch.from_dlpack(value).requires_grad_(trained) for key, (value, trained) in own.items()}
                    inputs = {"q": normal(B, H, N, D, seed=1), "v": normal(B, H, N, D, seed=3)}
                    inputs |= {} if row["shared_qk"] else {"k": normal(B, H, N, D, seed=2)}
                    inputs |= {"x": normal(B, N, H * D, seed=4)} if row["reads_x"] else {}
                    for value in inputs.values():
                        value.requires_grad_()
                    inputs |= {key: value for key, value in own.items() if value.requires_grad}

                    def known(given):
                        q, k, v, x = (given.pop(key, None) for key in "qkvx")
                        return (name, q, k, v), {"seed": 2, "training": True, "x": x, **options}
                    values = {key: value.detach() for key, value in {**own, **inputs}.items()}
                    arguments, more = known(values)
                    fixed = skytape.draws(*arguments, parameters={key: values[key] for key in own} or None, **more)

                    def call(*values):
                        given = dict(zip(inputs, values))
                        arguments, more = known(given)
                        return skytape.torch.attention(*arguments, parameters={**own, **given} or None,
                                                       draws=fixed, **more)
                    self.assertTrue(torch.autograd.gradcheck(call, tuple(inputs.values()), fast_mode=True))

    def test_softmax_is_torchs_own_forward_and_backward(self):
        mask = torch.arange(N)[None, :] < torch.tensor([[N], [40]])
        found = []
        for own in (True, False):
            q, k, v = (normal(2, H, N, D, seed=seed).requires_grad_() for seed in (1, 2, 3))
            out = (skytape.torch.attention("softmax", q, k, v, mask) if own else
                   scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]))
            (out * normal(2, H, N, D, seed=4)).sum().backward()
            found.append((out, q.grad, k.grad, v.grad))
        for ours, theirs in zip(*found):
            self.assertLess((ours - theirs).abs().max(), 1e-12)

    def test_module_with_the_weights_of_multihead_attention_gives_what_it_gives(self):
        theirs = nn.MultiheadAttention(8, H, batch_first=True, dtype=torch.float64)
        ours = skytape.torch.Attention("softmax", 8, H).double().eval()
        weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
        for mine, weight, bias in zip((ours.q_proj, ours.k_proj, ours.v_proj), weights, biases):
            mine.weight.data, mine.bias.data = weight.data, bias.data
        ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
        x, padding = normal(2, N, 8), torch.arange(N)[None, :] >= torch.tensor([[N], [40]])
        expected = theirs(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        self.assertLess((ours(x, padding) - expected).abs().max(), 1e-12)

    def test_modules_have_the_methods_parameters_and_draw_by_torchs_seed(self):
        module = skytape.torch.Attention("linformer", 8, H, length=N, features=8, sharing="headwise")
        self.assertTrue({"E", "F"} <= set(dict(module.named_parameters())))
        x = normal(1, N, 8, dtype=torch.float32)
        module(x).sum().backward()
        self.assertGreater(module.E.grad.norm(), 0)
        draws = skytape.torch.Attention("skyformer", 8, H, features=8)
        torch.manual_seed(1)
        first, second = draws(x), draws(x)
        torch.manual_seed(1)
        self.assertTrue((draws(x) == first).all())
        self.assertFalse((first == second).all())
        self.assertTrue((draws.eval()(x) == draws(x)).all())

    def test_running_averages_move_in_training_alone(self):
        module = skytape.torch.Attention("routing", 8, H, length=N)
        buffers = [value.clone() for value in module.buffers()]
        module.eval()(normal(1, N, 8, dtype=torch.float32)).sum().backward()
        self.assertTrue(all((a == b).all() for a, b in zip(buffers, module.buffers())))
        module.train()(normal(1, N, 8, dtype=torch.float32)).sum().backward()
        self.assertFalse(all((a == b).all() for a, b in zip(buffers, module.buffers())))

    def test_errors_say_what_to_do(self):
        q = normal(B, H, N, D)
        with self.assertRaisesRegex(skytape.UsageError, "say length="):
            skytape.torch.Attention("linformer", 8, H)
        with self.assertRaisesRegex(skytape.UsageError, "skytape.torch.attention"):
            skytape.attention("softmax", q.requires_grad_(), q, q)
        with self.assertRaisesRegex(skytape.UsageError, "float32, float64 or int32, got bfloat16"):
            skytape.torch.attention("softmax", *(q.detach().bfloat16() for _ in range(3)))
        changed = normal(B, H, N, D).requires_grad_()
        leaf = changed * 1
        out = skytape.torch.attention("softmax", leaf, leaf, leaf)
        leaf.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()

    def test_a_small_model_learns_as_with_multihead_attention(self):
        for attention in (lambda: skytape.torch.Attention("skyformer", 32, 2, features=16),
                          lambda: nn.MultiheadAttention(32, 2, batch_first=True)):
            torch.manual_seed(0)
            model = Model(attention())
            optimizer = torch.optim.Adam(model.parameters(), 3e-3)
            for step in range(60):
                ids, labels = sequences(32, step)
                loss = cross_entropy(model(ids), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            ids, labels = sequences(256, 10000)
            accuracy = (model.eval()(ids).argmax(1) == labels).double().mean()
            self.assertGreater(accuracy, 0.7, attention)
