"""Reading the ``%%nki`` line."""

from __future__ import annotations

import pytest

from nki_nb.line import Call, LineError, split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  --strict ", ["--strict"]),
        ("c = matmul(a, b)", ["c", "=", "matmul(a, b)"]),
        ('f(x, "a b") --check "x @ y"', ['f(x, "a b")', "--check", "x @ y"]),
        ("f(x[1, 2]) --check 'a + b'", ["f(x[1, 2])", "--check", "a + b"]),
        ("f({'k': (1, 2)})", ["f({'k': (1, 2)})"]),
        ("""f() --check "d['k']" """, ["f()", "--check", "d['k']"]),
        (r"""f("it's \"so\" ")""", [r"""f("it's \"so\" ")"""]),
        ("f(')')", ["f(')')"]),
    ],
)
def test_split(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize("line", ["f(a, b", 'f() --check "a', "f([)"])
def test_unfinished(line: str) -> None:
    with pytest.raises(LineError, match="missing"):
        split_words(line)


@pytest.mark.parametrize(
    ("text", "names"),
    [("f(a)", ()), ("c = f(a)", ("c",)), ("c, d = f(a)", ("c", "d")), ("c = f[1](a, *b, k=2)", ("c",))],
)
def test_call(text: str, names: tuple[str, ...]) -> None:
    assert Call.read(text).names == names


@pytest.mark.parametrize("text", ["f", "c = f", "c += f()", "c = d = f()", "c.x = f()", "f(); g()", "def f(): pass", "1 +"])
def test_not_a_call(text: str) -> None:
    with pytest.raises(LineError, match="expected a call"):
        Call.read(text)
