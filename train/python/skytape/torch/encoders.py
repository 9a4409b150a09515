"""The methods in other libraries' encoders: Hugging Face's Transformers, and PyTorch's nn.TransformerEncoder.

No method is causal, has a window or adds a bias to its scores: encoders that ask for these are refused.
"""
from .. import UsageError, _engine, _name, _texts, traits
from . import Attention, attention


def register(method: str, **options: float | str) -> None:
    """Makes a method an attn_implementation of Transformers that has its name. Weights are dropped at the
    model's rate by methods that drop any, as softmax; with others the rate must be 0 in training.
    """
    import transformers
    try:
        from transformers.masking_utils import bidirectional_mask_function
    except ImportError:
        raise UsageError(f"expected Transformers 5 or newer, got {transformers.__version__}") from None
    options = _texts(options)
    _engine.initial(_name(method), options, 2, 32, 64, 64, 0)  # the name and the options are right
    row = traits.METHODS[method]
    for what, has in (("arrays of its own", traits.owns(method, options)),
                      ("keys that are its queries", row["shared_qk"]),
                      ("weights that come from x", row["reads_x"]),
                      ("no mask", row["reads_padding"])):
        if has:
            raise UsageError(f"{method}: Transformers has no place for a method with {what}; "
                             "skytape.torch.Attention has")
    drops = any(option["key"] == "attention_dropout" for option in row["options"])

    def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=False,
               sliding_window=None, position_bias=None, softcap=None, **_):
        model = type(module).__name__
        if is_causal or getattr(module, "is_causal", False):
            raise UsageError(f"{model}: no method is causal")
        if sliding_window is not None or position_bias is not None or softcap is not None:
            raise UsageError(f"{model}: no method has a window, a position bias or a cap of scores")
        rate = {"attention_dropout": dropout} if drops else {}
        if module.training and dropout != 0 and not drops:
            raise UsageError(f"{model}: {method} drops no weights; set the model's rate, {dropout}, to 0")
        if scaling is not None:  # a method scales by 1 / sqrt(D) itself
            query = query * (scaling * query.shape[-1] ** 0.5)
        out = attention(method, query, key, value, attention_mask, training=module.training,
                        **{**rate, **options})
        return out.transpose(1, 2).contiguous(), None

    def mask(config, mask_function, attention_mask=None, **_):  # the default is none at all
        if mask_function is not bidirectional_mask_function:
            raise UsageError(f"{config.model_type}: no method is causal or has a window")
        return attention_mask

    transformers.AttentionInterface.register(method, attend)
    transformers.AttentionMaskInterface.register(method, mask)


class SelfAttention(Attention):
    """Attention in the place of `self_attn` of an nn.TransformerEncoderLayer with batch_first=True."""

    batch_first = False  # keeps .eval() from PyTorch's fused layer, which computes exact attention

    def forward(self, x, key, value, key_padding_mask=None, attn_mask=None, is_causal=False, **_):
        if key is not x or value is not x:
            raise UsageError("SelfAttention: key and value must be x")
        if attn_mask is not None or is_causal:
            raise UsageError("SelfAttention: no method takes attn_mask or is causal")
        # The layer gives -inf at padding, or True.
        return super().forward(x, None if key_padding_mask is None else key_padding_mask != 0), None
