"""A reader of xpu-top's recordings, written from docs/recording-format.md alone."""

import struct
import zlib
from pathlib import Path

import zstandard
from wire import HEADER as FRAME_HEADER

MAGIC, VERSION = b"\x89xpurec\n", 1
BLOCK, BLOCK_HEADER, LARGEST = b"xpub", 48, 16 << 20
OVERVIEW, DETAILS, INDEX = 1, 2, 3
NOBODY = 0xFFFFFFFF


class Recording:
    def __init__(self, path):
        self.bytes = Path(path).read_bytes()
        if self.bytes[:8] != MAGIC:
            raise ValueError("no recording of xpu-top")
        version, _, length, checksum = struct.unpack_from("<HHII", self.bytes, 8)
        if version != VERSION:
            raise ValueError(f"a recording of version {version}")
        text = self.bytes[20 : 20 + length]
        self.header, self.hosts, begin = {}, [], 20
        if zlib.crc32(text) == checksum:
            begin += length
            for name, _, value in (line.partition(" ") for line in text.decode().splitlines()):
                if name == "host":
                    self.hosts.append(value)
                else:
                    self.header[name] = value
        self.damage = []
        self.blocks = list(self._blocks(begin))

    def _block(self, at):
        header = self.bytes[at : at + BLOCK_HEADER]
        if len(header) < BLOCK_HEADER or header[:4] != BLOCK:
            return None
        checksum, kind, stored, raw, frames, of_bytes, _, first, last = struct.unpack("<IIIIIIIQQ", header[4:])
        whole = at + BLOCK_HEADER + stored <= len(self.bytes)
        if not whole or raw > LARGEST or checksum != zlib.crc32(header[8:]):
            return None
        return {"at": at, "kind": kind, "stored": stored, "raw": raw, "frames": frames, "checksum": of_bytes} | {
            "first": first,
            "last": last,
        }

    def _blocks(self, at):
        while at < len(self.bytes):
            block = self._block(at)
            if block is None:
                following = self.bytes.find(BLOCK, at + 1)
                following = len(self.bytes) if following < 0 else following
                if following - at != 16 or self.bytes[-4:] != b"xpue":
                    self.damage.append((at, following))
                at = following
                continue
            yield block
            at += BLOCK_HEADER + block["stored"]

    def index(self):
        """The offsets of the blocks from the index at the file's end; None if the file was not closed."""
        place, checksum, end = struct.unpack("<QI4s", self.bytes[-16:])
        if end != b"xpue" or checksum != zlib.crc32(self.bytes[-16:-8]):
            return None
        raw = self._unpacked(self._block(place))
        return [struct.unpack_from("<Q", raw, at)[0] for at in range(0, len(raw), 8 + BLOCK_HEADER)]

    def _unpacked(self, block):
        begin = block["at"] + BLOCK_HEADER
        stored = self.bytes[begin : begin + block["stored"]]
        if zlib.crc32(stored) != block["checksum"]:
            self.damage.append((block["at"], begin + block["stored"]))
            return b""
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=block["raw"])

    def frames(self, kinds=(OVERVIEW, DETAILS)):
        """Yields every frame: when it arrived, the rank of a detail or None, and its bytes."""
        for block in self.blocks:
            if block["kind"] not in kinds:
                continue
            raw, at = self._unpacked(block), 0
            while at < len(raw):
                when, rank = struct.unpack_from("<QI", raw, at)
                (length,) = struct.unpack_from("<I", raw, at + 12 + FRAME_HEADER - 4)
                end = at + 12 + FRAME_HEADER + length
                yield when, None if rank == NOBODY else rank, raw[at + 12 : end]
                at = end
