"""The few functions of IPython this package calls, with types: most of them have none of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import IPython.core.magic as _magic
import IPython.core.magic_arguments as _arguments
import IPython.display as _display

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type[Any])

_untyped_magic: Any = _magic
_untyped_arguments: Any = _arguments
_untyped_display: Any = _display

argument: Callable[..., Callable[[F], F]] = _untyped_arguments.argument
magic_arguments: Callable[[str], Callable[[F], F]] = _untyped_arguments.magic_arguments
cell_magic: Callable[[str], Callable[[F], F]] = _untyped_magic.cell_magic
line_magic: Callable[[str], Callable[[F], F]] = _untyped_magic.line_magic
magics_class: Callable[[C], C] = _untyped_magic.magics_class
display: Callable[..., None] = _untyped_display.display

__all__ = ["argument", "cell_magic", "display", "line_magic", "magic_arguments", "magics_class"]
