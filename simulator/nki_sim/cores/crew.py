"""Several cores in one process, of which one runs at a time.

A core runs until it ends or hands over the baton, which it does where it must wait for others. Who is next does not depend
on time: the ready one with the lowest number, or whom :func:`interleaved` lets choose. So a run is the same every time.

Cores run in the thread that called, one after the other, as long as none of them has to wait; while one of them waits there,
those that begin meanwhile have a thread each.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np

Choice = Callable[[Sequence[int]], int]
"""Of some ready cores the one that goes on."""

_choice: ContextVar[Choice | None] = ContextVar("nki_sim_interleaving", default=None)


@contextmanager
def interleaved(choose: Choice) -> Iterator[None]:
    """Let ``choose`` say who goes on, after every instruction of the runs inside the block."""
    token = _choice.set(choose)
    try:
        yield
    finally:
        _choice.reset(token)


def is_interleaved() -> bool:
    """Whether somebody lets the runs here go on in an order of their own."""
    return _choice.get() is not None


class Cancelled(BaseException):
    """Ends a thread whose run is over because of another one."""


class Stuck(Exception):  # noqa: N818 - a state, which who knows the reason explains
    """Nobody can go on."""


class Crew:
    """Functions that run in turns.

    Args:
        works: one function per core; what it returns is its result.

    Attributes:
        in_small_steps: whether others may go on after every instruction.
    """

    def __init__(self, works: Sequence[Callable[[], Any]]):
        self._choose = _choice.get()
        self.in_small_steps = self._choose is not None
        self._members = [_Member(number, work) for number, work in enumerate(works)]
        self._back = threading.Semaphore(0)
        self._first: deque[int] = deque()
        """Who goes on before anybody else."""
        self._here: _Member | None = None
        """Who runs, or waits, in the thread that called."""
        self._failure: BaseException | None = None

    def run(self) -> list[Any]:
        """Run all of them to their ends; their results.

        Raises:
            Stuck: some wait, and nobody is left to come.
            BaseException: whatever one of them raised first.
        """
        try:
            while self._failure is None and not all(member.ended for member in self._members):
                self._go_on_to_next()
        finally:
            for member in self._members:
                member.end()
        if self._failure is not None:
            raise self._failure
        return [member.result for member in self._members]

    def _go_on_to_next(self) -> _Member | None:
        """Let one go on until it hands over or ends; in the thread that called, unless somebody waits there. If it is the turn
        of who waits there, nothing is to be done but to return. Who it was; nobody if none can go on."""
        try:
            member = self._members[self._next()]
        except Stuck as stuck:
            self._failure = stuck
            return None
        if member is self._here:
            return member
        if self._here is None and not member.began:
            self._here = member
            member.run()
            self._here = None
        else:
            member.go_on(self._back)
            self._wait_for(member)
        if member.error is not None and self._failure is None:
            self._failure = member.error
        return member

    def _next(self) -> int:
        if self._first:
            return self._first.popleft()
        ready = [m.number for m in self._members if not m.ended and not m.blocked]
        if not ready:
            raise Stuck
        return ready[0] if self._choose is None else self._choose(ready)

    def _wait_for(self, member: _Member) -> None:
        try:
            self._back.acquire()
        except BaseException:  # an interrupt, which Python gives to the main thread, is meant for the kernel
            member.interrupt()
            raise

    # -- called by the one who runs --------------------------------------------------------------------------------------

    def has_ended(self, number: int) -> bool:
        """Whether one of them is done."""
        return self._members[number].ended

    def in_turn(self, numbers: Sequence[int]) -> None:
        """Let some go on one after the other, each until it hands over again, before anybody else does."""
        for number in numbers:
            self._members[number].blocked = False
        self._first.extend(numbers)

    def hand_over(self, number: int, *, blocked: bool = False) -> None:
        """Let others go on; come back in turn, or if ``blocked`` when :meth:`in_turn` says so."""
        member = self._members[number]
        member.blocked = blocked
        if member is not self._here:
            self._back.release()
            member.wait()
            return
        while self._go_on_to_next() is not member:
            if self._failure is not None:
                raise Cancelled


class _Member:
    """One of them: its turn, and how it ended.

    Attributes:
        began, ended, blocked: whether it was ever let go on, is done, and waits for who says that it may go on.
    """

    def __init__(self, number: int, work: Callable[[], Any]):
        self.number = number
        self.began = self.ended = self.blocked = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._work, self._context = work, copy_context()
        self._turn = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._is_over = False

    def run(self) -> None:
        """Do its work, in this thread."""
        self.began = True
        try:
            self.result = self._context.run(self._quietly)
        except Cancelled:
            pass  # somebody else's error ends the run
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for all
            self.error = error
        finally:
            self.ended = True

    def _quietly(self) -> Any:
        with np.errstate(all="ignore"):
            return self._work()

    def go_on(self, back: threading.Semaphore) -> None:
        """Let it go on in a thread of its own, until it releases ``back``."""
        if self._thread is None:
            self.began = True
            self._thread = threading.Thread(target=self._in_thread, args=(back,), name=f"core {self.number}", daemon=True)
            self._thread.start()
        else:
            self._turn.release()

    def _in_thread(self, back: threading.Semaphore) -> None:
        try:
            self.run()
        finally:
            back.release()

    def wait(self) -> None:
        self._turn.acquire()
        if self._is_over:
            raise Cancelled

    def interrupt(self) -> None:
        """Raise in the thread wherever it is."""
        if self._thread is not None and self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(Cancelled))

    def end(self) -> None:
        """Let its thread end, and wait for it."""
        self._is_over = True
        if self._thread is not None:
            self._turn.release()
            self._thread.join()
            self._thread = None
