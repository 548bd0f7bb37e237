#!/usr/bin/env python3
"""Records a terminal of two panes as an animated SVG: record_terminal.py --sluice build/sluice [--output FILE.svg]

The upper pane starts a server, the lower one asks it and then runs a prompt without it. Every command runs in a shell of
its own pseudo-terminal, and what it prints appears in the picture when it was printed. Only the typing is simulated.
The shells see a PATH and nothing else of the caller's environment, so no name of the machine gets into the picture.

Lines of the upper pane that are longer than it are cut (a terminal without autowrap), which an ellipsis shows. Cells
that were written twice show what was written last. A viewer without CSS animations shows the last screen.
"""
import argparse
import html
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 99
SERVER = ["sluice serve models/sluice-tiny"]
CLIENT = [
    "curl -s http://127.0.0.1:30000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    """-d '{"messages": [{"role": "user", "content": "What is the sum of 25, 17 and 40?"}]}' |\n"""
    "jq '.choices[0].message'",
    'sluice run models/sluice-tiny "Who are you?" --temperature 0 --verbose',
]
KEY_SECONDS = 0.018      # between two typed characters
READ_SECONDS = 0.9       # a pause in which a viewer reads
BUCKET_SECONDS = 0.05    # what appears within this time appears at once
CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 7.8, 17, 13
PADDING, TITLE_HEIGHT, DIVIDER_HEIGHT = 16, 34, 17
FOREGROUND, BACKGROUND, CHROME, EDGE, DIM = "#d6deeb", "#0d1522", "#172233", "#2b3a52", "#7d8ba3"
COLOURS = ["#8795ad", "#ff7b72", "#5fd38d", "#e3b341", "#6cb6ff", "#d2a8ff", "#56d4dd", "#d6deeb"]
BRIGHT = ["#7d8ba3", "#ffa198", "#7ee2a8", "#f2cc60", "#9ccbff", "#e2c5ff", "#8be9f0", "#ffffff"]
PROMPT = "\\[\\e[1;32m\\]$\\[\\e[0m\\] "
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[=>()][0-9A-B]?")


class Screen:
    """What a terminal of any height shows: cells with a style and the time at which they were written."""

    def __init__(self, wraps):
        self.wraps = wraps
        self.rows = [[]]
        self.row = self.column = 0
        self.style = (FOREGROUND, False)
        self.cut = set()
        self.rest = ""

    def feed(self, text, now):
        text = self.rest + text
        position = 0
        while position < len(text):
            if text[position] == "\x1b":
                found = ESCAPE.match(text, position)
                if not found:
                    break    # the rest of the sequence comes with the next bytes
                if found.group(2):
                    self.control(found.group(1), found.group(2))
                position = found.end()
                continue
            self.put(text[position], now)
            position += 1
        self.rest = text[position:]

    def put(self, char, now):
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row += 1
            self.rows.extend([[]] if self.row == len(self.rows) else [])
        elif char == "\b":
            self.column = max(self.column - 1, 0)
        elif char >= " ":
            if self.column >= COLUMNS and not self.wraps:
                self.cut.add(self.row)
                return
            if self.column >= COLUMNS:
                self.put("\n", now)
                self.put("\r", now)
            cells = self.rows[self.row]
            cells.extend([(" ", self.style, now)] * (self.column - len(cells) + 1))
            cells[self.column] = (char, self.style, now)
            self.column += 1

    def control(self, numbers, letter):
        if letter == "K":
            del self.rows[self.row][self.column:]
        elif letter == "C":
            self.column = min(self.column + int(numbers or 1), COLUMNS)
        elif letter == "m":
            for number in (int(n or 0) for n in numbers.split(";")):
                self.sgr(number)

    def sgr(self, number):
        colour, bold = self.style
        if number == 0:
            colour, bold = FOREGROUND, False
        elif number == 1:
            bold = True
        elif number == 2:
            colour = DIM
        elif number == 22:
            colour, bold = FOREGROUND, False
        elif 30 <= number <= 37:
            colour = COLOURS[number - 30]
        elif number == 39:
            colour = FOREGROUND
        elif 90 <= number <= 97:
            colour = BRIGHT[number - 90]
        self.style = (colour, bold)


class Pane:
    """A shell in a pseudo-terminal, and the screen that it writes to."""

    def __init__(self, wraps, folder, start):
        self.screen = Screen(wraps)
        self.start = start
        self.seen = ""
        self.master, slave = pty.openpty()
        # Wider than the picture, so that the shell does not wrap what is typed.
        termios.tcsetwinsize(slave, (50, 4 * COLUMNS))
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "TERM": "xterm-256color",
                       "LANG": "C.UTF-8", "PS1": PROMPT, "PS2": "    "}
        self.shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=slave, stdout=slave, stderr=slave,
                                      cwd=ROOT, env=environment, start_new_session=True,
                                      preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.wait_for("$ ")

    def pump(self, seconds):
        """Takes in what comes within that time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                return
            text = os.read(self.master, 65536).decode("utf-8", "replace")
            self.seen += text
            self.screen.feed(text, time.monotonic() - self.start)

    def wait_for(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in ESCAPE.sub("", self.seen):
            if time.monotonic() > end:
                sys.exit(f"waited {seconds} s for {text!r}; there is {self.seen!r}")
            self.pump(0.02)
        self.seen = ""

    def enter(self, command):
        for char in command + "\n":
            os.write(self.master, char.encode())
            self.pump(KEY_SECONDS)

    def close(self):
        self.screen = Screen(wraps=True)    # what the shell says while it ends is not of the recording
        os.write(self.master, b"\x03")
        self.pump(1)
        os.write(self.master, b"exit\n")
        try:
            self.shell.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.shell.pid, signal.SIGKILL)


def record(sluice):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "sluice").symlink_to(sluice.resolve())
        start = time.monotonic()
        server = Pane(False, folder, start)
        client = Pane(True, folder, start)
        try:
            for command in SERVER:
                server.enter(command)
            server.wait_for("ready to roll!")
            client.pump(READ_SECONDS)
            for command in CLIENT:
                client.seen = ""
                client.enter(command)
                client.wait_for("\n$ ")
                client.pump(READ_SECONDS)
            return [server.screen, client.screen]
        finally:
            client.close()
            server.close()


def runs(cells):
    """Neighbouring cells of one style that appeared together: (column, text, style, bucket)."""
    out = []
    for column, (char, style, when) in enumerate(cells):
        bucket = int(when / BUCKET_SECONDS)
        if out and out[-1][2:] == (style, bucket):
            out[-1] = (out[-1][0], out[-1][1] + char, style, bucket)
        else:
            out.append((column, char, style, bucket))
    return [(column + len(text) - len(text.lstrip()), text.strip(), style, bucket) for column, text, style, bucket in out
            if text.strip()]


def picture(screens):
    heights = [CELL_HEIGHT * sum(1 for i, row in enumerate(screen.rows) if row or i + 1 < len(screen.rows)) for screen in screens]
    width = round(COLUMNS * CELL_WIDTH + 2 * PADDING)
    height = TITLE_HEIGHT + 2 * PADDING + sum(heights) + DIVIDER_HEIGHT
    buckets = [int(when / BUCKET_SECONDS) for screen in screens for row in screen.rows for _, _, when in row]
    first, last = min(buckets), max(buckets)
    tops = [TITLE_HEIGHT + PADDING, TITLE_HEIGHT + PADDING + heights[0] + DIVIDER_HEIGHT]
    divider = tops[1] - DIVIDER_HEIGHT / 2
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'aria-label="A terminal: sluice serve, a request by curl, and sluice run">',
        "<!-- Written by tools/record_terminal.py from a real run. -->",
        "<style>",
        f"text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{FOREGROUND};"
        "white-space:pre;animation:a 1ms both}",
        "@keyframes a{from{opacity:0}}",
        "@keyframes b{50%{opacity:0}}",
        ".s{animation:none}.b{font-weight:700}.c{animation:a 1ms both,b 1.1s steps(1) infinite}",
        "@media(prefers-reduced-motion:reduce){text,.c{animation:none}}",
        "</style>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" fill="{BACKGROUND}" stroke="{EDGE}"/>',
        f'<path d="M1 {TITLE_HEIGHT}V10.5A9.5 9.5 0 0 1 10.5 1H{width - 10.5}A9.5 9.5 0 0 1 {width - 1} 10.5V{TITLE_HEIGHT}Z" '
        f'fill="{CHROME}"/>',
    ]
    for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        out.append(f'<circle cx="{20 + 20 * index}" cy="{TITLE_HEIGHT / 2}" r="6" fill="{colour}"/>')
    out.append(f'<text class="s" x="{width / 2}" y="{TITLE_HEIGHT / 2 + 4.5}" text-anchor="middle" style="fill:{DIM}">sluice</text>')
    out.append(f'<path d="M{PADDING} {divider}H{width - PADDING}" stroke="{EDGE}"/>')
    for screen, top in zip(screens, tops):
        for index, cells in enumerate(screen.rows):
            if index in screen.cut:
                cells = cells[:COLUMNS - 1] + [("…", (DIM, False), cells[-1][2])]
            y = top + index * CELL_HEIGHT + 13
            for column, text, (colour, bold), bucket in runs(cells):
                style = f"animation-delay:{(bucket - first) * BUCKET_SECONDS:.2f}s" + (
                    f";fill:{colour}" if colour != FOREGROUND else "")
                length = f' textLength="{len(text) * CELL_WIDTH:g}"' if len(text) > 1 else ""
                out.append(f'<text{" class=" + chr(34) + "b" + chr(34) if bold else ""} x="{PADDING + column * CELL_WIDTH:g}" '
                           f'y="{y}"{length} style="{style}">{html.escape(text, quote=False)}</text>')
    out.append(f'<rect class="c" x="{PADDING + screens[1].column * CELL_WIDTH:g}" y="{tops[1] + screens[1].row * CELL_HEIGHT + 1}" '
               f'width="{CELL_WIDTH}" height="15" fill="{FOREGROUND}" style="animation-delay:'
               f'{(last - first) * BUCKET_SECONDS:.2f}s"/>')
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "assets" / "serve.svg")
    options = parser.parse_args()
    options.output.write_text(picture(record(options.sluice)))


if __name__ == "__main__":
    main()
