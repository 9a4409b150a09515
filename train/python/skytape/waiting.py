"""Long work that Ctrl-C ends."""
import os
import threading

from . import _engine

threads = 0  # what set_threads() was told last; 0: nothing


def _in_child():
    global threads
    threads = 0  # a process made by fork computes by one thread


os.register_at_fork(after_in_child=_in_child)


def interruptible(function, *arguments):
    """function(*arguments), by another thread where this is the main one: Ctrl-C then ends the wait within a
    tenth of a second. Work that was begun runs to its end, and its result is dropped."""
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    found = []

    def work():
        try:
            if threads:
                _engine.set_threads(threads)  # OpenMP's number is each thread's own
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
