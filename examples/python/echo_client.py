"""echo_client.py: sends calls to echo_server and checks every answer.

    echo_client.py ADDRESS [CALLS [BYTES]]       e.g. echo_client.py 10.99.0.1:7471 10000 100

Up to DEPTH calls are open at a time, each in a coroutine that waits for its answer."""
import asyncio
import sys

import copyrpc

DEPTH = 64
BYTES_MAX = 65536


async def caller(server, calls, payload):
    """Calls until there are no more to be made; gives how many it made."""
    answered = 0
    for _ in calls:
        answer = await server.acall(payload, timeout=10.0, reply_bytes_max=len(payload))
        if answer != payload:
            raise SystemExit("echo_client: the answer is not what was sent")
        answered += 1
    return answered


async def run(address, count, size):
    payload = bytes((index * 7 + 1) & 0xFF for index in range(size))
    async with copyrpc.Context() as context, await context.aconnect(address) as server:
        calls = iter(range(count))  # shared by all callers
        answered = sum(await asyncio.gather(*(caller(server, calls, payload) for _ in range(DEPTH))))
    print(f"{answered} calls of {size} bytes answered")


def main():
    try:
        address, count, size = (sys.argv[1:] + ["10000", "100"][len(sys.argv) - 2 :])[:3]
        count, size = int(count), int(size)
        if count < 0 or not 0 <= size <= BYTES_MAX or len(sys.argv) > 4:
            raise ValueError
    except ValueError:
        sys.exit(f"usage: echo_client.py ADDRESS [CALLS [BYTES up to {BYTES_MAX}]]")
    asyncio.run(run(address, count, size))


if __name__ == "__main__":
    try:
        main()
    except copyrpc.CopyrpcError as error:
        sys.exit(f"echo_client: {error}")
