"""The attention methods in PyTorch: gradcheck of all, a module compared with nn.MultiheadAttention, the GPU.

The quick tests take a few methods in one setting each; `run.py whole` takes all methods in all settings.
"""
import os
import pathlib
import sys
import unittest
import unittest.mock
import warnings

import skytape  # before PyTorch, so that waiting threads leave the cores to others

try:
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention
    import skytape.torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

import runs_test

sys.path.append(str(pathlib.Path(__file__).parents[3] / "train/python/examples"))
import listops  # noqa: E402

B, H, N, D = 1, 2, 64, 4
WHOLE = os.environ.get("SKYTAPE_TESTS") == "whole"
# With parameters, with buffers, with draws, with running averages, reading x, sharing q and k, and none of
# these.
SOME = ("softmax", "skyformer", "linformer", "performer", "routing", "synthesizer", "reformer", "luna",
        "bigbird")
METHODS = tuple(row["name"] for row in skytape.methods() if WHOLE or row["name"] in SOME)


def normal(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def cases(batch=B):
    """(name, options, inputs, own): arrays by name for each method in each of its samples' settings that
    these sizes can serve, or in the last one; what is trained requires its gradient."""
    for row in skytape.methods():
        for options in row["samples"] if WHOLE else row["samples"][-1:] if row["name"] in SOME else ():
            try:
                own, _ = skytape._engine.initial(row["name"], options, H, D, N, H * D, 5)
            except skytape.UsageError:
                continue
            q, k, v = (normal(batch, H, N, D, seed=seed).requires_grad_() for seed in (1, 2, 3))
            arrays = {"q": q, "k": None if row["shared_qk"] else k, "v": v,
                      "x": normal(batch, N, H * D, seed=4).requires_grad_() if row["reads_x"] else None}
            yield row["name"], options, arrays, {key: torch.tensor(value, requires_grad=what == "trained")
                                                 for key, value, what in own}


def fixed(name, options, arrays, own):
    """A call's settings with its draws, so that it is a function of its arrays."""
    arrays, own = ({key: value if value is None else value.detach() for key, value in of.items()}
                   for of in (arrays, own))
    settings = {"seed": 2, "training": True, **options}
    return {**settings, "draws": skytape.draws(name, **arrays, parameters=own or None, **settings)}


class Torch(unittest.TestCase):
    def test_gradcheck_passes_for_every_method_in_every_sample_setting(self):
        for name, options, arrays, own in cases():
            with self.subTest(name, **options):
                settings = fixed(name, options, arrays, own)
                leaves = {key: value for key, value in {**arrays, **own}.items()
                          if value is not None and value.requires_grad}

                def call(*values):
                    given = {**arrays, **own, **dict(zip(leaves, values))}
                    return skytape.torch.attention(name, **{key: given.pop(key) for key in arrays},
                                                   parameters=given or None, **settings)
                self.assertTrue(torch.autograd.gradcheck(call, tuple(leaves.values()), fast_mode=True))

    def test_opcheck_passes_for_every_method_in_every_sample_setting(self):
        for name, options, arrays, own in cases():
            for training in (False, True):
                with self.subTest(name, training=training, **options):
                    averages = [key for key in own if key == "centroids"] if training else []
                    settings = skytape.torch.settings.text_of(training, 0, list(own) or None, averages, [],
                                                       skytape._texts(options))
                    taken = (*(arrays[key] for key in "vqkx"), torch.arange(N)[None] < 40, torch.tensor([7]),
                             list(own.values()), [], settings)
                    torch.library.opcheck(getattr(torch.ops.skytape, name).default, (*taken, True))
                    taken = torch.utils._pytree.tree_map(
                        lambda t: t.detach() if isinstance(t, torch.Tensor) else t, taken)
                    torch.library.opcheck(getattr(torch.ops.skytape, f"{name}_backward").default,
                                          (normal(B, H, N, D, seed=9), torch.empty(0, dtype=torch.int32),
                                           *taken))

    def test_arguments_that_are_none_are_errors_that_name_them(self):
        x = normal(1, 2, 8, 4)
        for text, more in {
            "mask and v differ in device": {"mask": torch.ones(1, 8, dtype=torch.bool, device="meta")},
            "seed and v differ in device": {"seed": torch.zeros(1, dtype=torch.int64, device="meta")},
            "k and v differ in device": {"k": x.to("meta")},
            "features: expected one value, got '4;gamma=5'": {"features": "4;gamma=5"},
            "features: expected one value, got '4.ngamma=5'": {"features": "4\ngamma=5"},
            "draws: expected a name as key, got 1": {"draws": {1: x}},
            "draws: expected a name as key, got 'a,b'": {"draws": {"a,b": x}},
            "parameters: expected a name as key, got 2": {"parameters": {2: x}},
            "E: expected a torch.Tensor, got NoneType": {"parameters": {"E": None}},
            r"seed: expected one whole number, got float32 \[\]": {"seed": torch.tensor(1.5)},
            r"seed: expected one whole number, got bool \[\]": {"seed": torch.tensor(True)},
            r"seed: expected one whole number, got int64 \[2\]": {"seed": torch.tensor([3, 4])},
            r"seed: expected 0 to 2\^64 - 1, got 18446744073709551616": {"seed": 2**64},
            r"length: expected 0 to 2\^63 - 1, got 9223372036854775808": {"length": 2**63},
            r"length: expected 0 to 2\^63 - 1, got -3": {"length": -3},
        }.items():
            with self.subTest(text), self.assertRaisesRegex(skytape.UsageError, text):
                skytape.torch.attention("skyformer", **{"q": x, "k": x, "v": x, **more})
        for differentiable in (False, True):
            with self.assertRaisesRegex(skytape.UsageError, "attention_dropout: expected 0..0.99, got 'abc'"):
                skytape.torch.attention("softmax", x, x, x, training=True, attention_dropout="abc",
                                        differentiable=differentiable)
        for length in (0, -3):
            for name in ("softmax", "linformer"):
                with self.assertRaisesRegex(skytape.UsageError,
                                            rf"length: expected 1 to 2\^63 - 1, got {length}$"):
                    skytape.torch.Attention(name, 8, H, length=length)

    def test_gradients_that_a_method_does_not_have_are_refused_and_differentiable_has_them(self):
        q, k, v = (normal(1, 1, 8, 4, seed=seed) for seed in (1, 2, 3))
        projection = normal(6, 4, seed=4).requires_grad_()
        sketch = skytape.draws("linformer_jlt", q, k, v, seed=5, features=4)["S"].double().requires_grad_()
        for name, key, leaf, more in (("performer", "projection", projection, {"features": 6}),
                                      ("linformer_jlt", "S", sketch, {"features": 4})):
            def loss(leaf, **settings):
                kind = "parameters" if name == "performer" else "draws"
                return skytape.torch.attention(name, q, k, v, **{kind: {key: leaf}}, **more,
                                               **settings).square().sum()
            with self.subTest(name):
                torch._dynamo.reset()
                doubled = torch.compile(lambda leaf: loss(leaf * 2), backend="aot_eager")
                for gradient in (lambda leaf: torch.autograd.grad(loss(leaf), leaf),
                                 torch.func.grad(loss), torch.func.jacrev(loss),
                                 torch.compile(torch.func.grad(loss), backend="aot_eager"),
                                 lambda leaf: torch.autograd.grad(doubled(leaf), leaf),
                                 lambda leaf: torch.vmap(torch.func.grad(loss))(leaf[None]),
                                 lambda leaf: torch.func.grad(
                                     lambda many: torch.vmap(loss)(many).sum())(leaf[None])):
                    with self.assertRaisesRegex(
                            (skytape.UsageError, torch._dynamo.exc.BackendCompilerFailed),
                            f"{key}: requires its gradient"):
                        gradient(leaf)
                found, = torch.autograd.grad(loss(leaf, differentiable=True), leaf)
                self.assertTrue(torch.allclose(
                    found, torch.func.grad(lambda leaf: loss(leaf, differentiable=True))(leaf)))
                step = 1e-6 * torch.ones_like(leaf)
                with torch.no_grad():
                    slope = (loss(leaf + step) - loss(leaf - step)) / 2
                self.assertAlmostEqual(float((found * step).sum() / slope), 1, places=5)

    def test_derivatives_forward_over_reverse_name_differentiable(self):
        q = normal(1, 1, 8, 4)
        with self.assertRaisesRegex(NotImplementedError, "differentiable=True"):
            torch.func.hessian(lambda q: skytape.torch.attention("softmax", q, q, q).sum())(q)

    def test_a_method_without_a_composed_form_is_an_error_that_names_those_that_have_one(self):
        x = normal(1, 2, 8, 4)
        call = skytape.torch.composed.Call(torch.ones(1, 8), None, {}, {}, {}, 8, False)
        for name in ("softmaks", "", 3, None):
            with self.assertRaisesRegex(skytape.UsageError, rf"no composed form of the method {name!r}; "
                                        "expected one of softmax, vmean,"):
                skytape.torch.composed.compose(name, x, x, x, call)

    def test_composed_forms_run_the_engines_forward_only_for_its_draws_and_averages(self):
        x, calls = normal(1, 2, 64, 4), []

        def counted(*arguments):
            calls.append(arguments[0])
            return engine(*arguments)
        engine = skytape.torch.operators._Call
        with unittest.mock.patch.object(skytape.torch.operators, "_Call", counted):
            for name in ("softmax", "vmean", "linear_attention", "skyformer"):
                skytape.torch.attention(name, x, x, x, differentiable=True)
            for training in (False, True):
                skytape.torch.Attention("routing", 8, 2, length=64, differentiable=True).train(training)(
                    normal(1, 64, 8, dtype=torch.float32))
        self.assertEqual(calls, ["skyformer", "routing"])
        for more, said in [({"featurs": 3}, "unknown option of linear_attention .featurs."),
                           ({"q": x[:, :, 1:]}, "q: expected v's shape"), ({"length": 5}, "length"),
                           ({"epsilon": "a"}, "epsilon: expected"), ({"draws": {"nosuch": x}}, "draws"),
                           ({"x": x.new_zeros(1, 64, 8)}, "x must be None"), ({"k": None}, "k is missing"),
                           ({"parameters": {"E": x}}, "the method has no 'E'")]:
            with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, said):
                skytape.torch.attention("linear_attention", **{"q": x, "k": x, "v": x, **more},
                                        differentiable=True)

    def test_composed_forms_refuse_under_torch_func_and_torch_compile_what_they_refuse_elsewhere(self):
        x = normal(1, 2, 64, 4)
        for name, more, said in [
            ("linear_attention", {"featurs": 3}, "unknown option of linear_attention .featurs."),
            ("softmax", {"q": x[:, :, :1]}, "q"), ("softmax", {"k": x[:, :, :5]}, "k"),
            ("softmax", {"k": None}, "k is missing"),
            ("cosformer", {"length": 5}, "length is 5, but v has N = 64"),
            ("reformer", {}, "k must be None"), ("vmean", {"x": x.new_zeros(1, 64, 8)}, "x must be None"),
            ("linear_attention", {"epsilon": -3}, "epsilon: expected 0..1, got '-3'"),
            ("local", {"form": "nosuch"}, "form: expected block.*, got 'nosuch'"),
            ("sparse_transformer", {"pattern": "strided", "heads": "merged"}, "strided needs"),
            ("softmax", {"attention_dropout": 2}, "expected 0..0.99, got '2'"),
            ("skeinformer", {"draws": {"nosuch": x, "columns": x.new_zeros(1, 2, 4).int(),
                                       "pilot": x.new_zeros(1, 4).int()}}, "'nosuch'.*known: columns, pilot"),
            ("softmax", {"draws": {"columns": x}}, "array of draws 'columns'"),
            ("cosformer", {"parameters": {"E": x[0, 0]}}, "E"),
            ("linformer", {"parameters": {"E": x[0, 0], "F": x[0, 0]}, "features": 3}, r"3, 64.*64, 4"),
        ]:
            def call(v):
                return skytape.torch.attention(name, **{"q": x, "k": x, **more}, v=v,
                                               differentiable=True).sum()
            with self.subTest(said, name=name):
                with self.assertRaisesRegex(skytape.UsageError, said):
                    torch.func.grad(call)(x)
                torch._dynamo.reset()
                with self.assertRaisesRegex(skytape.UsageError, said):
                    torch.compile(call, backend="aot_eager")(x)
        for more, said in (({"parameters": {"E": x[0, 0]}, "features": 3}, "'E': expected float64"),
                           ({"features": 0}, "features")):
            with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, said):
                torch.func.grad(lambda v: skytape.torch.attention("linformer", x, x, v, differentiable=True,
                                                                  **more).sum())(x)

    def test_composed_forms_compile_without_a_warning_and_with_arrays_that_a_seed_gives(self):
        x = normal(1, 2, 8, 4)
        for name, seed, options, lengths in (("softmax", 3, {}, (8,)),
                                             ("linformer", torch.tensor([4]), {"features": 5}, (8, 6))):
            def call(x, differentiable=True):
                return skytape.torch.attention(name, x, x, x, seed=seed, differentiable=differentiable,
                                               **options)
            with self.subTest(name), warnings.catch_warnings():
                warnings.filterwarnings("error", ".*lru_cache")
                torch._dynamo.reset()
                compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
                for n in lengths:
                    self.assertLess((compiled(x[:, :, :n]) - call(x[:, :, :n], False)).abs().max(), 1e-12)
        sizes = (torch.tensor([3]), "linformer", skytape.torch.settings.text_of(False, 0, None, [], [], {}),
                 "2,4,8,8")
        torch.library.opcheck(torch.ops.skytape.initial.default, sizes)

    def test_vmap_over_nothing_gives_nothing(self):
        for name in ("softmax", "linformer"):  # the second has its own parameters
            layer = skytape.torch.Attention(name, 16, 2, length=8)
            self.assertEqual(torch.vmap(layer)(torch.empty(0, 2, 8, 16)).shape, (0, 2, 8, 16))

    def test_backward_by_what_was_kept_is_that_of_a_call_made_again(self):
        for name, options, arrays, own in cases():
            with self.subTest(name, **options):
                found = []
                for hooks in (lambda t: t, lambda t: t.clone()):  # a copied token is no key to what was kept
                    with torch.autograd.graph.saved_tensors_hooks(hooks, lambda t: t):
                        out = skytape.torch.attention(name, **arrays, parameters=own or None, seed=4,
                                                      training=True, **options)
                    leaves = [t for t in (*arrays.values(), *own.values())
                              if t is not None and t.requires_grad]
                    found.append(torch.autograd.grad(out, leaves, normal(*out.shape, seed=8),
                                                     allow_unused=True))
                self.assertTrue(all((a == b).all() for a, b in zip(*found)))

    def test_backward_reads_what_it_is_given_where_memory_was_used_again(self):
        n, nothing = 8, torch.empty(0, dtype=torch.int32)
        q, k, v, dout = (normal(1, H, n, n, seed=seed) for seed in (1, 2, 3, 4))
        mask = (torch.arange(n)[None] < 5).double()
        taken = (torch.tensor([7]), [], [], skytape.torch.settings.text_of(False, 0, None, [], [], {}))
        for what, given in {"copy": (-q, mask.clone()), "order": (q.mT, mask.clone()),
                            "mask": (q, mask.clone())}.items():
            with self.subTest(what):
                other, read = given
                kept = read.clone()
                out, token, _ = torch.ops.skytape.softmax(v, q, k, None, read, *taken, True)
                read.fill_(1)  # as a compiler may, that gives backward a copy
                backward = torch.ops.skytape.softmax_backward
                ours = backward(dout, token, v, other, k, None, kept, *taken, out)
                theirs = backward(dout, nothing, v, other, k, None, kept, *taken, out)
                self.assertTrue(all((a == b).all() for a, b in zip(ours, theirs)))

    def test_a_compiled_graph_of_an_earlier_version_has_right_gradients(self):
        q, k, v, dout = (normal(1, H, N, D, seed=seed) for seed in (1, 2, 3, 4))
        taken = (v, q, k, None, None, torch.tensor([7]), [], [],
                 skytape.torch.settings.text_of(False, 0, None, [], [], {}))
        out, token, _ = torch.ops.skytape.softmax(*taken, True)
        out.zero_()  # it knew of no reader
        ours = torch.ops.skytape.softmax_backward(dout, token, *taken)
        theirs = torch.ops.skytape.softmax_backward(dout, torch.empty(0, dtype=torch.int32), *taken)
        self.assertTrue(all((a == b).all() for a, b in zip(ours, theirs)))

    def test_the_composed_form_is_the_operator_in_every_sample_setting(self):
        mask = torch.arange(N)[None] < torch.tensor([[N], [37], [0]])
        for name, options, arrays, own in cases(3):
            for training, given in ((False, mask), (True, mask), (True, None)):
                with self.subTest(name, training=training, masked=given is not None, **options):
                    found = []
                    leaves = [t for t in (*arrays.values(), *own.values())
                              if t is not None and t.requires_grad]
                    settings = {"mask": given, "seed": 9, "training": training, **options}
                    try:
                        for differentiable in (False, True):
                            out = skytape.torch.attention(name, **arrays, parameters=own or None,
                                                          differentiable=differentiable, **settings)
                            found.append((out, *torch.autograd.grad(
                                out, leaves, normal(*out.shape, seed=8), allow_unused=True)))
                    except skytape.UsageError as error:
                        self.assertRegex(str(error),
                                         "the composed form drops no weights|has no composed form")
                        self.assertTrue(name in ("softmax", "kernelized") or "implicit" in options.values())
                        continue
                    for ours, theirs in zip(*found):
                        ours, theirs = (torch.zeros(()) if t is None else t.detach() for t in (ours, theirs))
                        self.assertLess((ours - theirs).norm(), 1e-9 * (1 + ours.norm()))

    def test_composed_forms_have_the_fresh_arrays_and_draws_that_options_ask_for(self):
        for name, options in (("nystrom", {"features": 64, "conv_kernel": 3}), ("nystrom", {"features": 5}),
                              ("bigbird", {"block": 5}), ("linformer_jlt", {"features": 12, "fixed": 1}),
                              ("performer", {"features": 9, "redraw": 3}), ("performer", {"features": 9})):
            with self.subTest(name, **options):
                q, k, v = (normal(2, H, N, D, seed=seed) for seed in (1, 2, 3))
                ours, theirs = (skytape.torch.attention(name, q, k, v, seed=4, differentiable=form, **options)
                                for form in (False, True))
                self.assertLess((ours - theirs).abs().max(), 1e-9)

    def test_features_that_are_drawn_anew_come_from_pytorchs_random_numbers(self):
        q = normal(1, H, N, D)
        for options, draws in (({"redraw": 1}, True), ({}, False)):
            found = []
            layer = skytape.torch.Attention("performer", 8, H, length=N, features=9, **options).double()
            for seed in (1, 2, 1):
                torch.manual_seed(seed)
                found.append(layer(q.transpose(1, 2).flatten(2)))
            self.assertTrue((found[0] == found[2]).all())
            self.assertEqual((found[0] != found[1]).any(), draws)

    def test_composed_forms_under_autocast_take_parameters_in_float32(self):
        for kind in (torch.bfloat16, torch.float16):
            layer = skytape.torch.Attention("linformer", 8, H, length=N, features=5, differentiable=True)
            with torch.autocast("cpu", dtype=kind):
                out = layer(normal(1, N, 8, dtype=torch.float32))
            self.assertEqual(out.dtype, kind)
            out.sum().backward()
            self.assertEqual(layer.E.grad.dtype, torch.float32)

    def test_composed_forms_under_autocast_compute_what_the_operator_computes(self):
        for name in ("softmax", "skyformer", "linformer", "routing"):
            q, k, v = (normal(1, H, N, D, seed=seed, dtype=torch.float32).requires_grad_()
                       for seed in (1, 2, 3))
            found = []
            for differentiable in (False, True):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    out = skytape.torch.attention(name, q, k, v, seed=4, differentiable=differentiable)
                found.append((out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))))
            for ours, theirs in zip(*found):
                with self.subTest(name):
                    self.assertLess((ours - theirs).norm(), 1e-3 * ours.norm())

    def test_gradgradcheck_passes_for_the_composed_form_of_every_method(self):
        done = set()
        for name, options, arrays, own in cases():
            if name in done or options.get("attention_dropout", "") > "0":
                continue
            with self.subTest(name, **options):
                done.add(name)
                settings = fixed(name, options, arrays, own) | {"training": False}
                leaves = {key: value for key, value in {**arrays, **own}.items()
                          if value is not None and value.requires_grad}

                def call(*values):
                    given = {**arrays, **own, **dict(zip(leaves, values))}
                    return skytape.torch.attention(name, **{key: given.pop(key) for key in arrays},
                                                   parameters=given or None, differentiable=True, **settings)
                self.assertTrue(torch.autograd.gradgradcheck(call, tuple(leaves.values()), fast_mode=True))

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
        draws = skytape.torch.Attention("skyformer", 8, H, features=8, seed=3)
        torch.manual_seed(1)
        first, second = draws(x), draws(x)
        torch.manual_seed(1)
        self.assertTrue((draws(x) == first).all())
        self.assertFalse((first == second).all())
        self.assertTrue((draws.eval()(x) == draws(x)).all())

    def test_running_averages_move_in_training_alone(self):
        module = skytape.torch.Attention("routing", 8, H, length=N)
        before = [value.clone() for value in module.buffers()]
        for training in (False, True):
            module.train(training)(normal(1, N, 8, dtype=torch.float32)).sum().backward()
            stayed = all((a == b).all() for a, b in zip(before, module.buffers()))
            self.assertEqual(stayed, not training)

    def test_running_averages_keep_their_type_under_autocast(self):
        for differentiable in (False, True):
            module = skytape.torch.Attention("routing", 8, H, length=N, differentiable=differentiable)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                module(normal(1, N, 8, dtype=torch.float32))
            self.assertFalse((module.centroids.bfloat16() == module.centroids).all())

    def test_numbers_of_blocks_are_not_rounded_in_half_precision(self):
        module = skytape.torch.Attention("bigbird", 8, H, length=1200, block=2)  # bfloat16 has no 257
        before = module.blocks.clone()
        module.bfloat16()
        self.assertTrue((module.blocks == before).all())
        self.assertEqual(module(normal(1, N, 8, dtype=torch.bfloat16)).dtype, torch.bfloat16)

    def test_buffers_may_stay_in_float32_beside_parameters_in_half_precision(self):
        # As FullyShardedDataParallel has them in mixed precision.
        for name, more in (("performer", {}), ("bigbird", {}), ("linformer", {"frozen": True})):
            with self.subTest(name):
                module = skytape.torch.Attention(name, 8, H, length=N, **more).eval()
                for parameter in module.parameters():
                    parameter.data = parameter.data.bfloat16()
                x = normal(1, N, 8, dtype=torch.bfloat16).requires_grad_()
                out = module(x)
                out.sum().backward()
                self.assertEqual((out.dtype, x.grad.dtype), (torch.bfloat16, torch.bfloat16))
        q, wide = normal(1, H, N, D, dtype=torch.float32), torch.ones(5, N, dtype=torch.float64)
        with self.assertRaisesRegex(skytape.UsageError, "E and v differ in dtype: E is torch.float64"):
            skytape.torch.attention("linformer", q, q, q, features=5, parameters={"E": wide})

    def test_length_draws_and_seed_are_those_of_the_call(self):
        q, k, v = (normal(2, H, N, D, seed=seed) for seed in (1, 2, 3))
        length = 3 * N // 2
        for name, options in (("cosformer", {}), ("linformer", {"features": 5}),
                              ("skyformer", {"features": 5})):
            with self.subTest(name):
                settings = {"length": length, "seed": 6, **options}
                expected = skytape.attention(name, q, k, v, **settings)
                for differentiable in (False, True):
                    found = skytape.torch.attention(name, q, k, v, differentiable=differentiable, **settings)
                    self.assertLess((found - expected).abs().max(), 1e-12)
                other = {**settings, **({"seed": 7} if name == "skyformer" else {"length": N})}
                self.assertGreater(
                    (skytape.torch.attention(name, q, k, v, **other) - expected).abs().max(), 1e-6)
        draws = skytape.draws("skyformer", q, k, v, seed=11, features=5)
        found = skytape.torch.attention("skyformer", q, k, v, seed=6, features=5, draws=draws)
        self.assertTrue((found == skytape.attention("skyformer", q, k, v, seed=11, features=5)).all())
        layer = skytape.torch.Attention("linformer", 8, H, length=length, features=5)
        self.assertEqual(layer.E.shape, (5, length))

    def test_a_retained_graph_gives_its_gradients_again(self):
        q = normal(B, H, N, D).requires_grad_()
        out = skytape.torch.attention("skyformer", q, q, q, features=8).sum()
        first, second = (torch.autograd.grad(out, q, retain_graph=True)[0] for _ in range(2))
        self.assertTrue((first == second).all())

    def test_errors_say_what_to_do(self):
        q = normal(B, H, N, D)
        leaf = q.clone().requires_grad_()
        for call, said in [
            (lambda: skytape.torch.Attention("linformer", 8, H), "say length="),
            (lambda: skytape.torch.Attention("softmax", 9, H), "dim 9 is no multiple"),
            (lambda: skytape.torch.Attention("softmax", 8, H)(torch.ones(1, N, 8),
                                                              torch.ones(1, N, dtype=torch.int32)),
             r"key_padding_mask: expected a tensor of bool \[B, N\], true at padding, got int32"),
            (lambda: skytape.torch.Attention("softmax", 8, H)(torch.ones(2, N, 8),
                                                              torch.zeros(1, N, dtype=torch.bool)),
             rf"key_padding_mask: expected \[B, N\] = \[2, {N}\], got bool \[1, {N}\]"),
            (lambda: skytape.torch.attention("softmax", q, q, q, torch.ones(N, dtype=torch.bool)),
             rf"mask: expected \[B, N\] = \[{B}, {N}\], got bool \[{N}\]"),
            (lambda: skytape.attention("softmax", leaf, q, q), "skytape.torch.attention"),
            (lambda: skytape.torch.attention("softmax", q.bfloat16(), q, q),
             "q is torch.bfloat16, v is torch.float64"),
            (lambda: skytape.torch.attention("softmax", q, q.numpy(), q),
             rf"k: expected a torch.Tensor, got float64 \[{B}, {H}, {N}, {D}\] in a ndarray$"),
            (lambda: skytape.torch.attention("softmax", q, q, q, torch.ones(B, N, dtype=torch.bool).numpy()),
             r"mask: expected a tensor of bool \[B, N\], true for a token, false for padding, "
             rf"got bool \[{B}, {N}\] in a ndarray$"),
            (lambda: skytape.torch.Attention("softmax", 8, H)(torch.ones(1, N, 8).numpy()),
             rf"x: expected a tensor \[B, N, 8\], got float32 \[1, {N}, 8\] in a ndarray$"),
            (lambda: skytape.torch.Attention("softmax", 8, H, bias="no"),
             "bias: expected True or False, got 'no'$"),
            (lambda: skytape.torch.attention("softmaks", q, q, q), "did you mean 'softmax'"),
            (lambda: skytape.torch.Attention("linformer", 8, H, length=N, projection="mean", frozen=True),
             "linformer.frozen has no effect: linformer.projection is mean$"),
            (lambda: skytape.torch.attention("linformer", q, q, q, projection="mean", frozen=True,
                                             differentiable=True),
             "linformer.frozen has no effect: linformer.projection is mean$"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, said):
                call()
        changed = leaf * 1
        out = skytape.torch.attention("softmax", changed, changed, changed)
        changed.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()


@unittest.skipUnless(WHOLE, "minutes: run.py whole")
class ListOps(runs_test.ByTheProgram):
    def test_a_small_model_learns_as_with_multihead_attention(self):
        self.program("data", "--task", "listops", "--limit", "2000", "--data", "lists", "--export", "listops")
        ids, labels = listops.split(self.folder / "listops/basic_train.tsv", 64)
        self.assertEqual(ids.shape, (1920, 64))
        most_frequent = (labels == labels.mode().values).double().mean()
        for name in ("skyformer", "softmax", "nn.MultiheadAttention"):
            model = listops.trained(name, ids, labels, 150)
            right = (model(ids).argmax(1) == labels).double().mean()
            self.assertGreater(right, 1.5 * most_frequent, name)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU here")
@unittest.skipUnless(skytape.has_cuda, "the module was built without CUDA")
class Gpu(unittest.TestCase):
    def test_every_method_gives_there_what_it_gives_on_the_cpu(self):
        for name, options, arrays, own in cases():
            with self.subTest(name, **options):
                settings, found = fixed(name, options, arrays, own), []
                for device in ("cpu", "cuda"):
                    def there(values):
                        return {key: value if value is None else value.detach().to(device)
                                for key, value in values.items()}
                    out, gradients = skytape.vjp(
                        name, **there(arrays), dout=normal(B, H, N, D, seed=6).to(device),
                        parameters=there(own) or None, **{**settings, "draws": there(settings["draws"])})
                    self.assertEqual(out.device.type, device)
                    found.append({"out": out.cpu(), **{key: value.cpu() for key, value in gradients.items()}})
                for key, value in found[0].items():
                    self.assertLess((found[1][key] - value).norm(), 1e-9 * (1 + value.norm()), key)

    def test_the_callers_stream_is_waited_for(self):
        big, late = torch.ones(8192, 8192, device="cuda") / 8192, torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(late):
            for _ in range(20):
                big = big @ big  # some 100 ms
            v = big[:64, :4].reshape(1, 1, 64, 4)
            out = skytape.attention("softmax", v, v, v)
        self.assertLess((out - 1 / 8192).abs().max(), 1e-6)
        self.assertEqual(out.device, v.device)

    def test_arrays_of_two_devices_are_an_error(self):
        v = normal(B, H, N, D)
        with self.assertRaisesRegex(skytape.Error, "differ in dtype or device"):
            skytape.attention("softmax", v.cuda(), v, v)
