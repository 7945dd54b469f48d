"""A real Chromium without a window, driven through pipes by its own protocol (DevTools)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TIMEOUT_S = 60.0


class Page:
    """The one page of a browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._received = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def log_in(self, user: str, password: str) -> None:
        """Send a login with each request, as the browser's own dialog would have it done."""
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
        self._call("Network.setExtraHTTPHeaders", headers=headers)

    def open(self, url: str) -> None:
        """Go to a page."""
        self._call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        told = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until an expression is true in the page; its value."""
        step = f"""new Promise((done, failed) => {{
            const began = performance.now();
            (function look() {{
                let found = null;
                try {{ found = {script}; }} catch {{ }}
                if (found) return done(found);
                if (performance.now() - began > {TIMEOUT_S * 1000 / 2}) {{
                    return done("never: " + document.body.innerText);
                }}
                setTimeout(look, 20);
            }})();
        }})"""
        found = self.evaluate(step)
        assert not str(found).startswith("never: "), found
        return found

    def looks(self, scheme: str, width: int) -> None:
        """Have the page `light` or `dark`, and so many pixels wide."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])
        size = {"width": width, "height": 1300, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def picture(self, most_height: int) -> bytes:
        """Return what the page looks like, as PNG, down to its end or so many pixels."""
        end = "document.querySelector('main').getBoundingClientRect().bottom"
        height = min(most_height, self.evaluate(f"Math.ceil({end})"))
        clip = {"x": 0, "y": 0, "width": self.evaluate("innerWidth"), "height": height, "scale": 1}
        return base64.b64decode(self._call("Page.captureScreenshot", clip=clip)["data"])

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self._call("Input.insertText", text=text)

    def key(self, key: str, *, ctrl: bool = False) -> None:
        """Press a key: Tab, Enter, Escape, ArrowLeft, ArrowRight, or a letter."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}.get(key)
        code = code or ord(key.upper())
        typed = "" if len(key) > 1 else key
        typed = "\r" if key == "Enter" else typed
        text = {"text": typed} if typed and not ctrl else {}
        said = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 2 * ctrl}
        self._call("Input.dispatchKeyEvent", type="keyDown", **said, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", **said)

    def drag(self, chosen: str, start: float, end: float) -> None:
        """Drag over an element, between two parts of its width, as a mouse does."""
        box = self.evaluate(
            f"(({{x, y, width, height}}) => [x, y, width, height])"
            f"(document.querySelector({chosen!r}).getBoundingClientRect())"
        )
        x, y, width, height = box
        for kind, part in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            place = {"x": x + part * width, "y": y + height / 2}
            pressed = {"button": "left", "buttons": 1, "clickCount": 1}
            self._call("Input.dispatchMouseEvent", type=kind, **place, **pressed)

    @property
    def troubles(self) -> list[str]:
        """Errors and dialogs that the browser told of so far."""
        found = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
            elif method in {"Runtime.exceptionThrown", "Page.javascriptDialogOpening"}:
                found.append(json.dumps(params))
        return found

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        said: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if getattr(self, "_session", None) is not None:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while True:
            told = self._next()
            if "method" in told:
                self.events.append(told)
            elif told["id"] == self._count:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            received = os.read(self._from, 1 << 16)
            assert received, "the browser ended"
            self._received += received
        line, _, self._received = self._received.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with a profile of its own, and its page."""
    assert CHROMIUM is not None
    ours_read, to_browser = os.pipe()
    from_browser, theirs_write = os.pipe()
    command = f'exec "$0" "$@" 3<&{ours_read} 4>&{theirs_write}'
    words = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        "--hide-scrollbars",
        *("--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run"),
        *("--disable-background-networking", "--window-size=1280,800"),
    ]
    process = subprocess.Popen(
        ["/bin/bash", "-c", command, CHROMIUM, *words],
        pass_fds=(ours_read, theirs_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(ours_read)
    os.close(theirs_write)
    try:
        yield Page(to_browser, from_browser)
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        os.close(to_browser)
        os.close(from_browser)
