#!/usr/bin/env python3
"""hlog.py FILE [NS]: prints of each line of a histogram log its tag and how many latencies it has; with NS, only those in bins from there on."""
import base64
import struct
import sys
import zlib


def counts(text):
    """The count of each bin that is not empty, by the bin's least value."""
    cookie, length = struct.unpack_from(">II", base64.b64decode(text, validate=True))
    assert cookie == 0x1C849314, hex(cookie)
    packed = base64.b64decode(text)[8:]
    assert len(packed) == length
    plain = zlib.decompress(packed)
    cookie, length, offset, digits, least, _, ratio = struct.unpack_from(">IIIIQQd", plain)
    assert (cookie, offset, digits, least, ratio) == (0x1C849313, 0, 3, 1, 1.0) and len(plain) == 40 + length
    at, index, found = 40, 0, {}
    while at < len(plain):
        bits = shift = 0
        while True:
            byte, at = plain[at], at + 1
            bits |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = bits >> 1 ^ -(bits & 1)
        if number <= 0:
            index += -number or 1
        else:
            width = max(index // 1024 - 1, 0)
            found[index if index < 2048 else (1024 + index % 1024) << width] = number
            index += 1
    return found


from_ns = int(sys.argv[2]) if len(sys.argv) > 2 else 0
with open(sys.argv[1]) as log:
    for line in log:
        if line.startswith("Tag="):
            tag, *_, text = line.strip().split(",")
            print(tag[4:], sum(count for ns, count in counts(text).items() if ns >= from_ns))
