"""The joined module: everything in it, in order; whatever cannot be joined is an error."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from viewing import absent

from nki_nb.stepper.bundle import STATIC, BundleError, join, script, style


def modules(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text)
    return folder


def test_all_modules_are_in_it_after_those_they_import() -> None:
    text = script()
    places = {path.name: text.find(f"// -- {path.name}\n") for path in STATIC.glob("*.js")}
    assert -1 not in places.values()
    for path in STATIC.glob("*.js"):
        for other in re.findall(r'^import .* from "\./(.*)";', path.read_text(), re.MULTILINE):
            assert places[other] < places[path.name]


def test_it_is_one_module_without_imports() -> None:
    text = script()
    assert not re.search(r"^import\b", text, re.MULTILINE)
    assert text.count("export default") == 1 and "mountSaved" in text.rpartition("export {")[2]


def test_it_is_what_node_takes(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        absent("node")
    (tmp_path / "bundle.mjs").write_text(script(), encoding="utf-8")
    subprocess.run([node, "--check", str(tmp_path / "bundle.mjs")], check=True)


def test_nothing_is_fetched_from_elsewhere() -> None:
    for text in (script(), style()):
        addresses = set(re.findall(r"https?://[\w./-]+", text)) | set(re.findall(r"url\(.*?\)|@import.*", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}
        assert "innerHTML" not in text and "eval(" not in text


def test_joining(tmp_path: Path) -> None:
    folder = modules(
        tmp_path,
        a='import { b } from "./b.js";\nexport function a() {}\n',
        b='import { c } from "./c.js";\nexport const b = 1;\n',
        c="export class c {}\nfunction own() {}\n",
    )
    assert join("a.js", folder) == (
        "// -- c.js\nclass c {}\nfunction own() {}\n\n// -- b.js\nconst b = 1;\n\n// -- a.js\nfunction a() {}\nexport { a };\n"
    )


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ('import { b } from "./b.js";\n', 'import { a } from "./a.js";\nexport const b = 1;\n', "import each other"),
        ('import { c } from "./b.js";\n', "export const b = 1;\n", "does not export"),
        ('import { b } from "./b.js";\nconst x = 1;\n', "export const b = 1;\nconst x = 1;\n", "both have a top-level x"),
        ('import { b as d } from "./b.js";\n', "export const b = 1;\n", "does not export"),
        ('import * as b from "./b.js";\n', "", "cannot join"),
        ("export default 1;\n", "", "cannot join"),
        ('const x = await import("./b.js");\n', "", "cannot join"),
    ],
)
def test_what_cannot_be_joined(tmp_path: Path, a: str, b: str, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        join("a.js", modules(tmp_path, a=a, b=b))
