"""A headless Chromium that opens pages for the tests, over its debugging pipe."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile

PROGRAM = shutil.which("chromium")


class Browser:
    """Chromium with one tab. `errors` has what its console said since the last page was opened."""

    def __init__(self):
        self.home = tempfile.TemporaryDirectory(
            prefix="skytape-chromium-", ignore_cleanup_errors=True
        )
        (command_out, command_in), (answer_out, answer_in) = os.pipe(), os.pipe()
        theirs = [
            fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (command_out, answer_in)
        ]  # it wants them as 3 and 4
        arguments = [
            PROGRAM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={self.home.name}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", *arguments],
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (command_out, answer_in, *theirs):
            os.close(fd)
        self.commands, self.answers = os.fdopen(command_in, "wb", 0), os.fdopen(answer_out, "rb", 0)
        self.rest, self.number, self.session, self.errors, self.loaded = b"", 0, None, [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.commands.close()  # at the end of its pipe it ends
        self.answers.close()
        self.process.wait(timeout=60)
        self.home.cleanup()

    def message(self) -> dict:
        """Returns the next message, and notes what is an error."""
        while b"\0" not in self.rest:
            more = os.read(self.answers.fileno(), 1 << 16)
            if not more:
                raise RuntimeError("Chromium has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.errors.append(str(values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        self.loaded = self.loaded or method == "Page.loadEventFired"
        return message

    def call(self, method: str, **values) -> dict:
        self.number += 1
        command = {"id": self.number, "method": method, "params": values}
        if self.session:
            command["sessionId"] = self.session
        self.commands.write(json.dumps(command).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def open(self, address: str, width: int, media: str = "screen"):
        """Opens a page in a window of so many pixels' width, and waits until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Emulation.setEmulatedMedia", media=media)
        self.errors, self.loaded = [], False
        self.call("Page.navigate", url=address)
        while not self.loaded:
            self.message()

    def value(self, script: str):
        """Returns the value of a script, which may be a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def picture(self) -> bytes:
        """Returns the page as a PNG picture, of its whole length."""
        return base64.b64decode(
            self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        )
