"""The hook passes on what a signal handler of the program raises, and nothing else."""

import functools
import pathlib
import signal

import pytest

SOURCE = pathlib.Path(__file__).parents[2] / "hook/src/python/guard.py"
guard = {}
exec(compile(SOURCE.read_text(), SOURCE, "exec"), guard)


def raises(*_):
    raise TimeoutError


class Handlers:
    def method(self, *_):
        raise TimeoutError

    def __call__(self, *_):
        raise TimeoutError


class Raises(Handlers):
    def __getattr__(self, name):
        raise LookupError(name)


def raised_by(function):
    try:
        function()
    except TimeoutError as error:
        return error
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("handler", [raises, Handlers().method, Handlers(), functools.partial(raises, 1)])
def test_what_a_handler_raises_belongs_to_the_program(handler):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        error = raised_by(lambda: signal.raise_signal(signal.SIGUSR1))
        assert guard["is_of_a_handler"](error)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not guard["is_of_a_handler"](error)


def test_what_a_replaced_function_raises_does_not():
    assert not guard["is_of_a_handler"](raised_by(raises))


def test_a_handler_whose_attributes_raise_raises_nothing_here():
    before = signal.signal(signal.SIGUSR1, Raises())
    try:
        assert not guard["is_of_a_handler"](raised_by(raises))
    finally:
        signal.signal(signal.SIGUSR1, before)
