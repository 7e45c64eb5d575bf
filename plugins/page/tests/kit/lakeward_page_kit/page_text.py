"""The text and the elements of a page of HTML."""

from __future__ import annotations

from html.parser import HTMLParser


class Document(HTMLParser):
    """The elements of a page in their order, with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        """Read a page, or a part of one."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """See `HTMLParser`."""
        self.words += data.split()

    @property
    def text(self) -> str:
        """All words, with one space between them."""
        return " ".join(self.words)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of each element of a tag."""
        return [attributes for name, attributes in self.elements if name == tag]
