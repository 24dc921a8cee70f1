"""A hardened XML reader on the standard library's expat: a plain tree with line numbers.

No document type, no entities, no size or depth without bounds; every refusal is a `ModelError` that names
the file and, where the parser knows it, the line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

import numpy as np

from jaxdyn._checks import ModelError

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 256
MAX_ELEMENTS = 500_000

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass
class Element:
    """An XML element: tag, attributes, children, and where it began."""

    tag: str
    attributes: dict[str, str]
    source: str
    line: int
    children: list[Element] = field(default_factory=list)

    def __str__(self) -> str:
        name = self.attributes.get("name")
        return f"<{self.tag}>" if name is None else f"<{self.tag} name={name!r}>"

    def fail(self, reason: str) -> NoReturn:
        """Raise a ModelError about this element."""
        raise ModelError(f"{self}: {reason}", source=self.source, line=self.line)

    def all(self, tag: str) -> Iterator[Element]:
        """Return the children with that tag."""
        return (child for child in self.children if child.tag == tag)

    def maybe(self, tag: str) -> Element | None:
        """Return the only child with that tag, or None; two are refused."""
        found = list(self.all(tag))
        if len(found) > 1:
            found[1].fail(f"{self} has more than one <{tag}>")
        return found[0] if found else None

    def one(self, tag: str) -> Element:
        """Return the only child with that tag; none or two are refused."""
        found = self.maybe(tag)
        return found if found is not None else self.fail(f"has no <{tag}>")

    def text(self, attribute: str) -> str:
        """Return an attribute that must be there and not be empty."""
        value = self.attributes.get(attribute, "").strip()
        return value if value else self.fail(f"needs the attribute {attribute!r}")

    def number(self, attribute: str, default: float | None = None) -> float:
        """Return an attribute as one finite number; without a default it must be there."""
        if default is not None and attribute not in self.attributes:
            return default
        return float(self.numbers(attribute, 1)[0])

    def numbers(self, attribute: str, count: int, default: tuple[float, ...] | None = None) -> np.ndarray:
        """Return an attribute as `count` finite numbers; without a default it must be there."""
        if default is not None and attribute not in self.attributes:
            return np.array(default)
        words = self.text(attribute).split()
        shown = repr(" ".join(words))[:80]
        wanted = "a number" if count == 1 else f"{count} numbers"
        if len(words) != count:
            self.fail(f"{attribute} must be {wanted}; got {len(words)} in {shown}")
        for word in words:
            if not _NUMBER.fullmatch(word):
                self.fail(f"{attribute} must be {wanted}, finite and separated by blanks; got {word[:40]!r} in {shown}")
        values = np.array([float(word) for word in words])
        if not np.all(np.isfinite(values)):
            self.fail(f"{attribute} must be finite; got {shown}")
        return values


def read_bytes(path: str | Path) -> bytes:
    """Return a file's content; refuse what is not a file or is too large."""
    path = Path(path)
    try:
        if not path.is_file():
            raise ModelError("no such file" if not path.exists() else "this is not a file", source=str(path))
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ModelError(f"the file has {size} bytes; more than {MAX_BYTES} are not read", source=str(path))
        return path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"cannot be read: {error}", source=str(path)) from None


def parse_xml(data: bytes | str, source: str) -> Element:
    """Parse an XML document into its root element."""
    parser = expat.ParserCreate("utf-8" if isinstance(data, str) else None)  # text has been decoded already
    if isinstance(data, str):
        data = data.encode(errors="surrogatepass")  # which expat refuses
    if len(data) > MAX_BYTES:
        raise ModelError(f"the document has {len(data)} bytes; more than {MAX_BYTES} are not read", source=source)
    top = Element("", {}, source, 0)
    stack = [top]
    count = itertools.count(1)

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if next(count) > MAX_ELEMENTS:
            raise ModelError(f"there are more than {MAX_ELEMENTS} elements", source=source)
        if len(stack) > MAX_DEPTH:
            raise ModelError(
                f"elements are nested deeper than {MAX_DEPTH}", source=source, line=parser.CurrentLineNumber
            )
        element = Element(tag, attributes, source, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def refuse(*_: object) -> NoReturn:
        raise ModelError(
            "document types and entities (<!DOCTYPE ...>) are refused", source=source, line=parser.CurrentLineNumber
        )

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "syntax error")
        raise ModelError(
            f"malformed XML: {reason} (column {error.offset + 1})", source=source, line=error.lineno
        ) from None
    except (LookupError, UnicodeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"malformed XML: {error}", source=source) from None
    return top.children[0]
