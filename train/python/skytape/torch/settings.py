"""A call's settings as one text: an operator takes no dict, and a compiled graph takes it for a constant."""
import functools
import typing

import torch


class Settings(typing.NamedTuple):
    training: bool
    length: int     # the nominal N; 0: that of v
    fresh: bool     # the method's own arrays come from the seed
    own: list       # names of the method's own arrays that are given
    averages: list  # those that the call moves
    draws: list     # names of the random arrays that are given
    options: dict   # the method's options, as texts


def text_of(training, length, own, averages, draws, options):
    """own: the arrays' names; None: fresh from the seed."""
    return "\n".join(["1" if training else "0", f"{int(length)}", "fresh" if own is None else "",
                      ",".join(own or ()), ",".join(averages), ",".join(draws),
                      ";".join([f"{key}={value}" for key, value in options.items()])])


def settings_of(text):
    # torch.compile warns of a cached function, and reads the text once for each graph.
    return _read(text) if torch.compiler.is_compiling() else _cached(text)


def _read(text):
    training, length, fresh, *names, options = text.split("\n")
    own, averages, draws = (part.split(",") if part else [] for part in names)
    pairs = (pair.partition("=") for pair in options.split(";") if pair)
    return Settings(training == "1", int(length), fresh == "fresh", own, averages, draws,
                    {key: value for key, _, value in pairs})


_cached = functools.lru_cache(1024)(_read)
