"""A method in the encoders of PyTorch and of Hugging Face's Transformers, by the page's own lines."""
import importlib.util
import pathlib
import re
import unittest

import skytape  # before PyTorch, so that waiting threads leave the cores to others

try:
    import torch
    from torch import nn
    import skytape.torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

from torch_test import normal

ROOT = pathlib.Path(__file__).parents[3]
B, N = 3, 48


class Encoders(unittest.TestCase):
    def test_transformer_encoder_layer(self):
        page, names = (ROOT / "train/python/README.md").read_text(encoding="utf-8"), {}
        lines, = re.findall(r"```python\n(import skytape.torch.encoders, torch\n.*?)```", page, re.S)
        exec(lines.replace("skyformer", "softmax"), names)
        ours, theirs = names["encoder"], nn.TransformerEncoder(
            nn.TransformerEncoderLayer(64, 2, dropout=0, batch_first=True), 6)
        for mine, other in zip(ours.layers, theirs.layers):
            other.load_state_dict({**other.state_dict(), **{
                key: value for key, value in mine.state_dict().items() if "self_attn" not in key}})
            for kind in ("weight", "bias"):
                parts = [getattr(projection, kind) for projection in (
                    mine.self_attn.q_proj, mine.self_attn.k_proj, mine.self_attn.v_proj)]
                getattr(other.self_attn, f"in_proj_{kind}").data = torch.cat(parts).detach()
            other.self_attn.out_proj.load_state_dict(mine.self_attn.out_proj.state_dict())
        x, padding = (normal(B, N, 64, dtype=torch.float32),
                      torch.arange(N)[None, :] >= torch.tensor([[N], [7], [30]]))
        for training, grad in ((True, True), (False, True), (False, False)):
            with self.subTest(training=training, grad=grad), torch.set_grad_enabled(grad):
                both = [encoder.train(training)(x, src_key_padding_mask=padding)
                        for encoder in (ours, theirs)]
                self.assertLess((both[0] - both[1])[~padding].abs().max(), 1e-4)
        for more in ({"mask": torch.ones(N, N, dtype=torch.bool).triu(1)}, {"is_causal": True}):
            with self.assertRaisesRegex(skytape.UsageError, "no method takes attn_mask or is causal"):
                ours(x, **more)
        with self.assertRaisesRegex(skytape.UsageError, "key and value must be x"):
            ours.layers[0].self_attn(x, x.clone(), x)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "no transformers here")
    def test_transformers(self):
        page, names = (ROOT / "train/python/README.md").read_text(encoding="utf-8"), {}
        lines, = re.findall(r"```python\n(import skytape.torch.encoders, transformers\n.*?)```", page, re.S)
        exec(lines.replace('"skyformer", features=64', '"softmax"').replace("skyformer", "softmax").replace(
            "(num", "(hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=50, num"),
             names)
        transformers, ids, real = (names["transformers"], torch.arange(B * N).reshape(B, N) % 40 + 4,
                                   torch.arange(N) < torch.tensor([[N], [7], [30]]))
        sizes = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "num_hidden_layers")
        esm = transformers.EsmConfig(**{key: getattr(names["config"], key) for key in sizes},
                                     position_embedding_type="rotary", pad_token_id=1, token_dropout=False,
                                     attn_implementation="softmax")  # scales queries itself
        for model in (transformers.BertModel(names["config"]).eval(), transformers.EsmModel(esm).eval()):
            ours = model(ids, attention_mask=real.long()).last_hidden_state
            model.set_attn_implementation("sdpa")
            theirs = model(ids, attention_mask=real.long()).last_hidden_state
            with self.subTest(type(model).__name__):
                self.assertLess((ours - theirs)[real].abs().max(), 1e-5)

        attend = transformers.AttentionInterface()["softmax"]
        gpt = transformers.GPT2Model(transformers.GPT2Config(
            n_embd=32, n_head=2, n_layer=1, vocab_size=50, attn_implementation="softmax"))
        # Its layers say in the call that they are causal, not in the module.
        clip = transformers.CLIPTextModel(transformers.CLIPTextConfig(
            hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64,
            attn_implementation="softmax"))
        for refused, kind in ((gpt, "gpt2"), (clip, "clip_text_model")):
            with self.assertRaisesRegex(skytape.UsageError, f"{kind}: no method is causal or has a window"):
                refused(ids)
        for module in (gpt.h[0].attn, next(m for m in clip.modules() if hasattr(m, "q_proj"))):
            with self.assertRaisesRegex(skytape.UsageError, f"{type(module).__name__}: no method is causal"):
                attend(module, *[normal(1, 2, N, 8)] * 3, None, is_causal=True)
        nobody_has = "no method has a window, a position bias or a cap of scores"
        for more in ({"sliding_window": 4}, {"position_bias": normal(1, 2, N, N)}, {"softcap": 30.0}):
            with self.assertRaisesRegex(skytape.UsageError, nobody_has):
                attend(model, *[normal(1, 2, N, 8)] * 3, None, **more)
        if hasattr(transformers.models.t5.modeling_t5, "ALL_ATTENTION_FUNCTIONS"):  # not in 5.0
            t5 = transformers.T5EncoderModel(transformers.T5Config(
                d_model=32, d_kv=16, num_heads=2, num_layers=1, d_ff=64, attn_implementation="softmax"))
            with self.assertRaisesRegex(skytape.UsageError, f"T5Attention: {nobody_has}"):
                t5(ids)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "no transformers here")
    def test_transformers_methods(self):
        from skytape.torch.encoders import register
        from transformers import AttentionInterface
        x, taken, module = normal(1, 2, N, 8), {}, nn.Module()
        for row in skytape.methods():
            name = row["name"]
            try:
                register(name)
            except skytape.UsageError as e:
                self.assertRegex(str(e), f"^{name}: Transformers has no place for a method with ")
                continue
            taken[name] = AttentionInterface()[name]
            ours, _ = taken[name](module.eval(), x, x, x, None, dropout=0.5)
            self.assertTrue(torch.equal(ours, skytape.torch.attention(name, x, x, x).transpose(1, 2)))
        self.assertFalse(taken.keys() & {"linformer", "reformer", "synthesizer", "informer"})
        with self.assertRaisesRegex(skytape.UsageError, "did you mean 'features'"):
            register("skyformer", feature=3)
        exact = skytape.torch.attention("softmax", x, x, x).transpose(1, 2)
        for rate, least, most in ((0, 0, 1e-6), (0.5, 0.01, 100)):
            found, _ = taken["softmax"](module.train(), x, x, x, None, dropout=rate)
            self.assertTrue(least <= (found - exact).abs().max() < most, rate)
        with self.assertRaisesRegex(skytape.UsageError,
                                    "skyformer drops no weights; set the model's rate, 0.5, to 0"):
            taken["skyformer"](module, x, x, x, None, dropout=0.5)
