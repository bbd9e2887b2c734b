"""A client made from docs/wire-format.md: it reads only the page's table of kinds and its list of types.

A struct becomes a dict, an enum a pair of the variant's name and its content, a tuple a list.
"""

import pathlib
import re
import struct

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/wire-format.md"
TOKEN = re.compile(r"\w+|[<>(){}\[\],;|:]|\S")
UNSIGNED = {"u16", "u32", "u64"}
SIGNED = {"i32", "i64"}
PLAIN = UNSIGNED | SIGNED | {"u8", "bool", "f64", "char", "string", "bytes"}


class Reader:
    """Parses one definition: fields, or an enum."""

    def __init__(self, text):
        self.tokens = TOKEN.findall(text)
        self.at = 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, wanted):
        is_next = self.peek() == wanted
        self.at += is_next
        return is_next

    def want(self, wanted):
        assert self.take(wanted), f"{wanted} expected before {self.tokens[self.at :]}"

    def note(self):
        """Skips the note on a field: text in parentheses, or text after a colon up to the end."""
        if self.take("("):
            deep = 1
            while deep:
                deep += {"(": 1, ")": -1}.get(self.next(), 0)
        if self.take(":"):
            while self.peek() not in ("", ")"):
                self.next()

    def definition(self):
        return self.enum() if self.take("enum") else self.fields()

    def fields(self):
        fields = []
        while True:
            name = self.next()
            fields.append((name, self.type()))
            self.note()
            if not self.take(","):
                return ("struct", fields)

    def types(self):
        """Parses a tuple within parentheses. Its parts may have names."""
        types = []
        while True:
            is_named = re.fullmatch(r"\w+", "".join(self.tokens[self.at + 1 : self.at + 2]))
            if is_named and self.peek() != "enum":
                self.next()
            types.append(self.type())
            if self.take(":"):
                self.next()
            if not self.take(","):
                self.want(")")
                return types

    def type(self):
        if self.take("("):
            return ("tuple", self.types())
        if self.take("["):
            self.want("u8")
            self.want(";")
            size = int(self.next())
            self.want("]")
            return ("array", size)
        word = self.next()
        if word == "enum":
            return self.enum()
        if word in ("list", "option"):
            self.want("<")
            inner = self.type()
            self.want(">")
            return (word, inner)
        return word

    def enum(self):
        variants = []
        while True:
            name, inner = self.next(), ("struct", [])
            if self.take("("):
                inner = ("tuple", self.types())
            elif self.take("{"):
                inner = self.fields()
                self.want("}")
            variants.append((name, inner))
            if not self.take("|"):
                return ("enum", variants)


def definitions(page):
    """The definitions of the indented block by name. A line with deeper indentation continues the one before."""
    texts, name = {}, None
    for line in page.splitlines():
        if begun := re.match(r"    (\w+) +(\S.*)", line):
            name = begun[1]
            texts[name] = begun[2]
        elif name and line.startswith("     "):
            texts[name] += " " + line.strip()
        else:
            name = None
    return {name: whole(text) for name, text in texts.items()}


def whole(text):
    reader = Reader(text)
    found = reader.definition()
    assert not reader.peek(), f"{reader.tokens[reader.at :]} is not understood in: {text}"
    return found


def kinds(page):
    rows = re.findall(r"^\| (\d+) \| (\w+)(?: = (\w+))?( \(empty\))? \|", page, re.M)
    return {int(kind): ("struct", []) if empty else (same or name) for kind, name, same, empty in rows}


class Client:
    def __init__(self):
        page = PAGE.read_text()
        self.kinds = kinds(page)
        self.types = definitions(page)
        envelope = re.search(r"^    envelope: (.*)$", page, re.M)
        self.envelope = whole(envelope[1])

    def read(self, frame):
        """Returns the kind, the envelope and the body."""
        magic, version, kind, length = struct.unpack("<4sHHI", frame[:12])
        assert (magic, version, length) == (b"xput", 1, len(frame) - 12)
        payload = Payload(frame[12:])
        envelope, body = (self.value(of, payload) for of in (self.envelope, self.kinds[kind]))
        assert payload.at == len(payload.bytes), f"{len(payload.bytes) - payload.at} bytes are left of kind {kind}"
        return kind, envelope, body

    def write(self, kind, envelope, body):
        payload = self.encoded(self.envelope, envelope) + self.encoded(self.kinds[kind], body)
        return struct.pack("<4sHHI", b"xput", 1, kind, len(payload)) + payload

    def value(self, of, payload):
        if isinstance(of, str):
            return payload.plain(of) if of in PLAIN else self.value(self.types[of], payload)
        shape, inner = of
        if shape == "struct":
            return {name: self.value(each, payload) for name, each in inner}
        if shape == "tuple":
            return [self.value(each, payload) for each in inner]
        if shape == "list":
            return [self.value(inner, payload) for _ in range(payload.varint())]
        if shape == "option":
            return self.value(inner, payload) if payload.take(1) == b"\1" else None
        if shape == "array":
            return payload.take(inner)
        name, inner = inner[payload.varint()]
        return name, self.value(inner, payload)

    def encoded(self, of, value):
        if isinstance(of, str):
            return encoded(of, value) if of in PLAIN else self.encoded(self.types[of], value)
        shape, inner = of
        if shape == "struct":
            assert set(value) == {name for name, _ in inner}
            return b"".join(self.encoded(each, value[name]) for name, each in inner)
        if shape == "tuple":
            return b"".join(self.encoded(each, part) for each, part in zip(inner, value))
        if shape == "list":
            return varint(len(value)) + b"".join(self.encoded(inner, part) for part in value)
        if shape == "option":
            return b"\0" if value is None else b"\1" + self.encoded(inner, value)
        if shape == "array":
            return value
        number = [name for name, _ in inner].index(value[0])
        return varint(number) + self.encoded(inner[number][1], value[1])


class Payload:
    def __init__(self, content):
        self.bytes, self.at = content, 0

    def take(self, count):
        piece = self.bytes[self.at : self.at + count]
        assert len(piece) == count, "cut short"
        self.at += count
        return piece

    def varint(self):
        first = self.take(1)[0]
        return first if first < 251 else int.from_bytes(self.take({251: 2, 252: 4, 253: 8}[first]), "little")

    def plain(self, of):
        if of in UNSIGNED:
            return self.varint()
        if of in SIGNED:
            number = self.varint()
            return -(number + 1) // 2 if number % 2 else number // 2
        if of == "f64":
            # The bytes, because NaN differs from NaN.
            return self.take(8)
        if of in ("string", "bytes"):
            content = self.take(self.varint())
            return content.decode() if of == "string" else content
        byte = self.take(1)
        return byte.decode("ascii") if of == "char" else byte[0]


def varint(number):
    if number < 251:
        return bytes([number])
    size = next(size for size in (2, 4, 8) if number < 1 << 8 * size)
    return bytes([{2: 251, 4: 252, 8: 253}[size]]) + number.to_bytes(size, "little")


def encoded(of, value):
    if of in UNSIGNED:
        return varint(value)
    if of in SIGNED:
        return varint(2 * value if value >= 0 else -2 * value - 1)
    if of == "f64":
        return value
    if of in ("string", "bytes"):
        content = value.encode() if of == "string" else value
        return varint(len(content)) + content
    return value.encode() if of == "char" else bytes([value])
