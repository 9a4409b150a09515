"""Long work that Ctrl-C ends."""
import math
import threading

from . import _engine

_LONG = 2**33  # multiply-adds of exact attention's first product, about a second's work
_GPU = 2  # of DLPack's kinds of devices


def interruptible(function, *arguments):
    """function(*arguments), by another thread where this is the main one: Ctrl-C then ends the wait within a
    tenth of a second. Work that was begun runs on, and its result is dropped."""
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    found, threads = [], _engine.threads()

    def work():
        try:
            _engine.become_helper(threads)  # OpenMP's number is each thread's own
            found.append((function(*arguments), None))
        except BaseException as error:
            found.append((None, error))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    result, error = found.pop()
    if error is not None:
        raise error
    return result


def attending(v, function, *arguments):
    """function(*arguments), which computes attention with values v: interruptible where it may take seconds.
    On a GPU it does not, and waits for the stream that is this thread's."""
    shape, device = getattr(v, "shape", ()), getattr(v, "__dlpack_device__", None)  # JAX's tracers have none
    if device is not None and len(shape) > 2 and math.prod(shape) * shape[-2] > _LONG and device()[0] != _GPU:
        return interruptible(function, *arguments)
    return function(*arguments)
