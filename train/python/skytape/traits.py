"""What a method has with its options: arrays of its own, gradients of them, draws."""
import functools

from . import UsageError, _engine, arrays, methods
from . import draws as _draws

METHODS = {row["name"]: row for row in methods()}


# An option may give a method arrays of its own, or let it draw.


def _of_some(does):
    """The methods that do, and of each other one the options by which it does where they are not their
    defaults."""
    always = {name for name in METHODS if does(name, {})}
    return always, {name: {key for sample in row["samples"] for key, value in sample.items()
                           if does(name, {key: value})}
                    for name, row in METHODS.items() if name not in always}


def _does(of, name, options):
    """True where the method is one of those that _of_some() found, with these options."""
    always, by_option = of
    defaults = {option["key"]: option["default"] for option in METHODS[name]["options"]}
    return name in always or any([options.get(key, defaults[key]) != defaults[key]
                                  for key in by_option[name]])


def _has_arrays(name, options):
    try:
        return any([_engine.initial(name, options, 2, 32, length, 64, 0)[0] for length in (64, 2048)])
    except UsageError:
        return False  # an option that needs another one


def _has_draws(name, options):
    row, rows = METHODS[name], arrays.np.ones((1, 2, 1, 8))
    try:
        return row["random"] or bool(
            _draws(name, rows, None if row["shared_qk"] else rows, rows, training=True,
                   x=arrays.np.ones((1, 1, 16)) if row["reads_x"] else None, **options))
    except UsageError:
        return False


_OWNERS, _DRAWERS = _of_some(_has_arrays), _of_some(_has_draws)


def owns(name, options):
    """True where the method has arrays of its own."""
    return _does(_OWNERS, name, options)


def draws(name, options, fresh=False):
    """True where a training call draws; fresh: the method's own arrays, too."""
    row = METHODS[name]
    values = {option["key"]: option["default"] for option in row["options"]} | options
    if "attention_dropout" in values:
        try:
            return float(values["attention_dropout"]) > 0
        except ValueError:
            return True  # the call's error says so
    return _does(_DRAWERS, name, options) or fresh and owns(name, options)


@functools.lru_cache(1024)
def untrained(name, options, heads, width, of_x):
    """The names of the method's own arrays that have no gradient. options: pairs; of_x: the width of x."""
    found = set()
    for length in (2, 512):  # some methods have such arrays for short or for long sequences alone
        try:
            own, _ = _engine.initial(name, dict(options), heads, width, length, of_x, 0)
        except UsageError:
            continue
        found |= {key for key, _, what in own if what != "trained"}
    return found
