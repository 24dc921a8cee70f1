"""The documentation says what the code says: quotations are verbatim, names exist, examples run."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python *(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = [
    re.compile(r"(?<![\w/.])jaxdyn((?:\.[A-Za-z_]\w*)+)"),
    re.compile(r"`((?:algorithms|recursion|spatial|joints)\.[\w.]+)`"),  # relative to the package
]
PATH = re.compile(r"(?<![\w/.-])((?:jaxdyn|tests|docs|examples|benchmarks)/[\w./]*\.(?:py|md))")
LINK = re.compile(r"\]\((?!http)([^)#]+)")

page = pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def blocks(path):
    return [(block["mark"], block["code"]) for block in BLOCK.finditer(path.read_text())]


def without_docstrings(source):
    """Return a module's text without the lines of its functions' and classes' docstrings."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            doc = node.body[0]
            lines[doc.lineno - 1 : doc.end_lineno] = [""] * (doc.end_lineno - doc.lineno + 1)
    return "".join(lines)


def resolve(name):
    """Return what a dotted name under jaxdyn means; modules are imported."""
    found, path = importlib.import_module("jaxdyn"), "jaxdyn"
    for part in name.strip(".").split("."):
        path = f"{path}.{part}"
        if not hasattr(found, part):
            importlib.import_module(path)
        found = getattr(found, part)
    return found


@page
def test_quotations_are_verbatim(path):
    """A block marked `source=file` is in that file, as it stands or with docstrings left out."""
    for mark, code in blocks(path):
        if mark:
            source = (ROOT / mark.removeprefix("source=")).read_text()
            found = code in source or code in without_docstrings(source)
            assert found, f"{path.name} quotes what is not there:\n{code}"


def test_the_plain_twins_are_quoted():
    quoted = "".join(code for mark, code in blocks(ROOT / "docs/theory/004.md") if mark.endswith("plain.py"))
    functions = re.findall(r"^def ([a-z]\w*)", quoted, re.MULTILINE)
    assert functions == ["inverse_dynamics", "mass_matrix", "forward_dynamics"]


@page
def test_names_exist(path):
    text = path.read_text()
    for pattern in NAMES:
        for name in pattern.findall(text):
            try:
                resolve(name)
            except (ImportError, AttributeError):
                pytest.fail(f"{path.name} speaks of {name.strip('.')}, which does not exist")


@page
def test_files_exist(path):
    text = path.read_text()
    assert [name for name in PATH.findall(text) if not (ROOT / name).exists()] == []
    assert [link for link in LINK.findall(text) if not (path.parent / link).exists()] == []


def test_a_missing_name_is_noticed():
    with pytest.raises(ImportError):
        resolve("jaxdyn.no_such_function")


@pytest.mark.parametrize("path", [p for p in PAGES if any(not mark for mark, _ in blocks(p))], ids=lambda p: p.stem)
def test_code_runs(path, tmp_path):
    """In JAX's default configuration, one page after the other in processes of their own."""
    code = "\n".join(code for mark, code in blocks(path) if not mark)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
