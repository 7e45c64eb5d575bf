"""Results on standard output: plain tables and lines, or one JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import click
import msgspec

from lakeward.model.secrets import SecretTexts


@dataclass(frozen=True, slots=True)
class Columns:
    """A table in text form. Names that end in `#` are figures, aligned to the right.

    With `details`, so many of the last columns, and others that have no room, stand below their row, a line for each.
    """

    names: Sequence[str]
    rows: Iterable[Sequence[object]]
    details: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Writes results; `form` is `text` or `json`, and `secrets` are masked in both."""

    form: str
    secrets: SecretTexts = field(default_factory=SecretTexts)

    def show(self, document: object, *parts: str | Columns) -> None:
        """Write one result.

        `document` is what JSON gets (dataclasses, dicts, lists, texts, numbers), `parts` what text gets: lines and
        tables, in order.
        """
        if self.form == "json":
            click.echo(as_json(document, self.secrets))
            return
        from lakeward.cli.text_tables import text_table  # noqa: PLC0415 - `--help` must not wait for it

        for part in parts:
            if isinstance(part, str):
                click.echo(self.secrets.hide(part))
            else:
                click.echo(text_table(part.names, self._rows(part), part.details))

    def _rows(self, table: Columns) -> Iterable[Sequence[object]]:
        return ([self.secrets.hide_in(value) for value in row] for row in table.rows)


def as_json(document: object, secrets: SecretTexts) -> str:
    """Write a document as indented JSON with `secrets` masked; what JSON does not know becomes its text."""
    plain = secrets.hide_in(msgspec.to_builtins(document, enc_hook=str, str_keys=True))
    return msgspec.json.format(msgspec.json.encode(plain, enc_hook=str), indent=2).decode()
