"""words.py: the members of a command, and what is told, as the package has them. ../runner_lines.py has lines."""
import asyncio
import sys
from pathlib import Path

import copyrpc
from copyrpc._trace import Carried  # what an interceptor's trace becomes: so that endpoints here need no interceptors
from copyrpc.errors import error_of

sys.path.append(str(Path(__file__).resolve().parent.parent))
from runner_lines import big, event, payload, told

__all__ = ["ACCESSES", "ERRORS", "THINGS", "big", "event", "members_of", "options_of", "payload", "picked", "status_of", "told", "told_trace", "traced"]
# Members that name what there is.
THINGS = ("endpoint", "channel", "queue", "listener", "connection", "request", "room", "region", "grant", "target")
ERRORS = {error.status_name: error for error in (error_of(-number) for number in range(1, 100))}
ACCESSES = ("local_write", "remote_write", "remote_read", "remote_atomic", "device", "host")


def members_of(command):
    """Milliseconds become seconds, as the package has them."""
    return {key[:-3] if key.endswith("_ms") else key: value / 1000 if key.endswith("_ms") else value for key, value in command.items()}


def traced(request, trace):
    """The request with the trace of a command, if it has one."""
    if trace is None:
        return request
    told = bytes.fromhex(trace)
    return Carried(request, copyrpc.Trace(told[:16], told[16:24], told[24]))


def told_trace(trace):
    return "" if trace is None else (trace.trace_id + trace.span_id + bytes([trace.flags])).hex()


def picked(of, names):
    """Those attributes, of which there may be more."""
    return {name: getattr(of, name) for name in names.split()}


def options_of(token="", key="", **options):
    return copyrpc.EndpointOptions(token=token.encode(), key=key.encode(), **options)


def status_of(error):
    if isinstance(error, copyrpc.RemoteError):
        return int(error.status)
    if isinstance(error, asyncio.CancelledError):
        return "CRPC_E_CANCELED"
    # What Python itself says of arguments of a wrong kind.
    return getattr(error, "status_name", "CRPC_E_INVALID" if isinstance(error, (TypeError, ValueError)) else type(error).__name__)
