"""The one line of a Spark error that a person needs; the text of one is a page of Java."""

from __future__ import annotations

_CALL_FAILED = "An error occurred while calling "
"""How py4j begins the text of each error of Java's; what went wrong stands in the next line."""


def reason_of(error: BaseException) -> str:
    """Return the most useful line of a Spark error: the last line of the Python traceback, if there is one.

    py4j asks the Java process for the text of an error, which fails if that process is ending.
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - py4j's own; the job's end has to be told all the same
        return f"{type(error).__name__}, whose text the Java process could not give any more"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith(("lakeward.errors.", "pyarrow.lib.", "OSError", "MemoryError")):
            return line
    if lines and lines[0].startswith(_CALL_FAILED):
        del lines[0]
    return lines[0].removeprefix(": ") if lines else type(error).__name__
