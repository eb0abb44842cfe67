"""``nki-nb lint``: what a file or a kernel breaks, on every generation, for people and for CI."""

from nki_nb.lint.results import Lint, lint_call, lint_file, lint_kernel

__all__ = ["Lint", "lint_call", "lint_file", "lint_kernel"]
