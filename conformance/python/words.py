"""words.py: the words of a line, what is told, and the payloads that lengths and seeds stand for."""
import asyncio
import functools
import zlib

import copyrpc

PERIOD = 4093
# Words that name what there is.
THINGS = ("endpoint", "channel", "queue", "listener", "connection", "request", "room", "region", "grant", "target")
TEXTS = ("token", "key", "blob", "rooms", "tags", "private", "lengths", "offsets", "gid", "shared", "bytes")
ACCESSES = ("local_write", "remote_write", "remote_read", "remote_atomic")


@functools.lru_cache(4096)
def payload(length, seed):
    period = bytes((seed * 40503 + index) * 2654435761 >> 24 & 0xFF for index in range(min(length, PERIOD)))
    return (period * (length // PERIOD + 1))[:length]


def tell(what, **fields):
    print(what, *(f"{key}={value}".replace(" ", "_") for key, value in fields.items()), flush=True)


def told(data):
    return {"length": len(data), "checksum": zlib.crc32(data)}


def words_of(pairs):
    """Numbers become numbers and milliseconds seconds, as the package has them."""
    for key, value in (pair.split("=", 1) for pair in pairs):
        if key.endswith("_ms"):
            yield key[:-3], int(value) / 1000
        else:
            yield key, int(value) if value.isdigit() and key not in TEXTS else value


def options_of(token="", key="", **options):
    return copyrpc.EndpointOptions(token=token.encode(), key=key.encode(), **options)


def status_of(error):
    if isinstance(error, copyrpc.RemoteError):
        return str(error.status)
    if isinstance(error, asyncio.CancelledError):
        return "CRPC_E_CANCELED"
    # What Python itself says of arguments of a wrong kind.
    return getattr(error, "status_name", "CRPC_E_INVALID" if isinstance(error, (TypeError, ValueError)) else type(error).__name__)
