"""A headless Chromium, driven over its debugging pipe: what a page shows, tells a screen reader, and does on keys."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium is installed (Debian: apt install chromium)"
_KEYS = {"Tab": 9, "Enter": 13, " ": 32}
_HIDDEN = frozenset({"none", "generic", "InlineTextBox", "LineBreak"})


@dataclass(frozen=True, slots=True)
class Node:
    """What a screen reader is told of one element."""

    role: str
    name: str


class Browser:
    """One Chromium process. `tab` opens a page in it."""

    def __init__(self, profile: Path) -> None:
        """Start it.

        Args:
            profile: a new directory for its files.
        """
        theirs_in, self._in = os.pipe()
        self._out, theirs_out = os.pipe()
        options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe"
        words = [str(CHROMIUM), *options.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *words],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._unread = b""
        self._events: list[tuple[str, str]] = []
        """Events that nobody has waited for yet: the name of each, and its page's session."""

    def __enter__(self) -> Self:
        """Return the browser, which `close` ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def tab(self, *, javascript: bool = True, dark: bool = False, width: int = 1280) -> Tab:
        """Open an empty page.

        Args:
            javascript: whether scripts run.
            dark: whether the person prefers dark colours.
            width: in CSS pixels.
        """
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        tab.call("Emulation.setScriptExecutionDisabled", value=not javascript)
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        for domain in ("Page", "DOM", "Accessibility"):
            tab.call(f"{domain}.enable")
        return tab

    def call(self, method: str, session: str = "", **parameters: object) -> dict[str, Any]:
        """Call a method of Chrome's DevTools protocol, and return its result."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer}"
                return dict(answer["result"])
            self._events.append((answer["method"], answer.get("sessionId", "")))

    def wait_for(self, event: str, session: str) -> None:
        """Wait until a page reports an event, or return at once if it has."""
        deadline = time.monotonic() + LIMIT_S
        while (event, session) not in self._events:
            found = self._read(deadline)
            self._events.append((found["method"], found.get("sessionId", "")))
        self._events.remove((event, session))

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self._out, 1 << 20)
            assert data, "Chromium has ended"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(line))


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        """Keep the session."""
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method for this page."""
        return self._browser.call(method, self._session, **parameters)

    def open(self, url: str) -> None:
        """Go to an address, and wait until all of it is loaded."""
        assert "errorText" not in self.call("Page.navigate", url=url)
        self._browser.wait_for("Page.loadEventFired", self._session)

    def until(self, seen: Callable[[], object]) -> None:
        """Wait until something is seen."""
        wait_until(seen, "what is to be seen of the page")

    def has(self, selector: str) -> bool:
        """Return whether the document has an element; needs no scripts."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        return bool(self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"])

    def spoken(self) -> list[Node]:
        """Return what a screen reader is told, in order; needs no scripts."""
        found = {one["nodeId"]: one for one in self.call("Accessibility.getFullAXTree")["nodes"]}
        spoken, left = [], [one for one in found.values() if "parentId" not in one]
        while left:
            one = left.pop()
            left += [found[child] for child in reversed(one.get("childIds", ())) if child in found]
            if not one["ignored"] and one["role"]["value"] not in _HIDDEN:
                spoken.append(Node(one["role"]["value"], one.get("name", {}).get("value", "")))
        return spoken

    def text(self) -> str:
        """Return all text that is spoken."""
        return " ".join(one.name for one in self.spoken() if one.role == "StaticText")

    def run(self, script: str) -> Any:  # noqa: ANN401 - what the script returns
        """Return the value of an expression of JavaScript in the page; of a promise what it is kept with."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        code = _KEYS[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of what is seen of the page, or of all of it."""
        taken: str = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        return b64decode(taken)
