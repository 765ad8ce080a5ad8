"""As much of a terminal as a test needs to know what is on it: cursor positions, texts, clearing."""

import codecs
import re

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()=>][0-9A-B]?")


class Screen:
    def __init__(self, width=80, height=24):
        self.width, self.height = width, height
        self.rest = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.clear()

    def clear(self):
        self.cells = [[" "] * self.width for _ in range(self.height)]
        self.x = self.y = 0

    def feed(self, data: bytes):
        text = self.rest + self.decoder.decode(data)
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self.put(text[at])
                at += 1
                continue
            found = SEQUENCE.match(text, at)
            if found is None:
                break
            self.obey(found[1] or "", found[2] or "")
            at = found.end()
        self.rest = text[at:]

    def put(self, character):
        if character == "\r":
            self.x = 0
        elif character == "\n":
            self.y += 1
        elif self.x < self.width and self.y < self.height:
            self.cells[self.y][self.x] = character
            self.x += 1

    def obey(self, numbers, kind):
        if kind == "H":
            row, column = (int(number or 1) for number in (numbers or "1;1").split(";"))
            self.y, self.x = row - 1, column - 1
        elif (kind, numbers) in (("J", "2"), ("h", "?1049"), ("l", "?1049")):
            self.clear()

    @property
    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)
