"""A headless Chromium, spoken to through a pair of pipes by its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--disable-sync", "--hide-scrollbars", "--mute-audio", "--remote-debugging-pipe",
)  # fmt: skip

# The protocol reads from 3 and writes to 4; the program that puts the pipes there becomes the browser.
ON_PIPES = """
import os, sys
ends = [os.dup(int(end)) for end in sys.argv[1:3]]
for end, number in zip([os.dup(end) for end in ends], (3, 4)):
    os.dup2(end, number, inheritable=True)
os.execv(sys.argv[3], sys.argv[3:])
"""
READ_PICTURE = """async (png) => {
  const picture = await createImageBitmap(new Blob([Uint8Array.from(atob(png), (c) => c.charCodeAt(0))]));
  const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
  context.drawImage(picture, 0, 0);
  const { data } = context.getImageData(0, 0, picture.width, picture.height);
  let text = "";
  for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
  return [picture.width, picture.height, btoa(text)];
}"""


def find_chromium():
    """Return the path of a Chromium on this machine, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A browser with one page, for a `with` statement."""

    def __init__(self, folder, size=(1000, 700), flags=()):
        """Start it; `folder` is an empty one for its profile."""
        self.size = size
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        command = [find_chromium(), *FLAGS, *flags, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}"]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", ON_PIPES, str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._count, self._session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(20)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method, **params):
        """Call a method of the protocol and return its result; events on the way are kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            if not data:
                raise EOFError("Chromium has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def resize(self, width, height, dark=False):
        """Give the page a size, and a preference for light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path, query=""):
        """Open a file and wait until the viewer is ready, or has given up."""
        self.events.clear()
        self.call("Page.navigate", url=f"{path.resolve().as_uri()}{query}")
        self.wait("document.readyState === 'complete' && window.jaxdyn !== undefined")
        self.settle()

    def evaluate(self, expression):
        """Return the value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition, seconds=60):
        """Wait for a JavaScript condition."""
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"waited {seconds} s in vain for: {condition}"
            time.sleep(0.02)

    def settle(self):
        """Wait until what is due has been drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def key(self, key):
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)
        self.settle()

    def drag(self, start, end, button="left"):
        """Drag the mouse from one point of the page to another."""
        common = {"button": button, "buttons": {"left": 1, "right": 2}[button], "clickCount": 1}
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **common)
        self.settle()

    def click(self, selector):
        """Click in the middle of an element."""
        x, y = self.middle(selector)
        self.drag((x, y), (x, y))

    def middle(self, selector, along=0.5):
        """Return the point in the middle of an element, or a part of the way along it."""
        box = self.evaluate(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        return box["x"] + along * box["width"], box["y"] + box["height"] / 2

    def screenshot(self):
        """Return a picture of the page as PNG bytes."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def pixels(self, selector):
        """Return what an element looks like, (height, width, 4) uint8; the browser reads its own picture."""
        box = self.evaluate(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        clip = {name: box[name] for name in ("x", "y", "width", "height")} | {"scale": 1}
        png = self.call("Page.captureScreenshot", format="png", clip=clip)["data"]
        width, height, raw = self.evaluate(f"({READ_PICTURE})({json.dumps(png)})")
        return np.frombuffer(base64.b64decode(raw), np.uint8).reshape(height, width, 4)

    def problems(self):
        """Return exceptions, console errors and log entries since the page was opened."""
        self.evaluate("0")  # what was on its way has come
        found = [str(e["params"]) for e in self.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        return found + [
            str(e["params"]["args"])
            for e in self.events
            if e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "assert")
        ]

    def requests(self):
        """Return the addresses that the page asked for since it was opened."""
        self.evaluate("0")
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
