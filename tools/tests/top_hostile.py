#!/usr/bin/env python3
"""top_hostile.py PID: clients of a context's socket that do not do what copyrpc-top does. It must go on answering others."""

import re
import socket
import struct
import sys
import time

MAGIC = 0x706F54637072706F


def names(pid: int) -> list[str]:
    with open("/proc/net/unix") as file:
        return sorted({m[1] for m in re.finditer(rf"@(copyrpc-top\.{pid}\.\d+)$", file.read(), re.M)})


def connect(name: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect("\0" + name)
    return client


def snapshot(client: socket.socket) -> bytes:
    received = b""
    while part := client.recv(65536):
        received += part
    return received


def check_good(name: str) -> None:
    """An honest client is answered, perhaps after others have been dropped."""
    for _ in range(100):
        try:
            received = snapshot(connect(name))
        except (BlockingIOError, ConnectionError, TimeoutError):
            received = b""
        if received:
            break
        time.sleep(0.1)
    magic, version, context_bytes, endpoint_bytes, records = struct.unpack_from("=QIIII", received)
    assert (magic, version) == (MAGIC, 1), received[:32]
    assert len(received) == context_bytes + records * endpoint_bytes


def main() -> None:
    name = names(int(sys.argv[1]))[0]
    check_good(name)

    many = []
    for _ in range(24):  # more than are served at once, and none of them reads or leaves
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        try:
            client.connect("\0" + name)
        except BlockingIOError:
            break
        many.append(client)
    assert len(many) > 8
    check_good(name)

    talker = connect(name)  # sends what nobody asked for, as much as goes
    talker.setblocking(False)
    try:
        while True:
            talker.send(b"x" * 65536)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        pass
    check_good(name)

    for _ in range(500):  # leaves at once
        try:
            connect(name).close()
        except BlockingIOError:
            time.sleep(0.01)
    check_good(name)

    begin = time.monotonic()  # asks again and again: each costs a poll, so there are 20 a second
    for _ in range(10):
        check_good(name)
    assert time.monotonic() - begin > 0.4
    for client in many:
        client.close()


main()
