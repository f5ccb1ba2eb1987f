"""Lanes: the forms for coroutines, and what the documentation prints."""
import asyncio
import os
import subprocess
import time

import pytest
from conftest import LANE, STRICT_PYTHON, data, until
from test_lanes import forged

import copyrpc


async def both(context, listener):
    task = asyncio.ensure_future(context.aconnect(listener.address, LANE))
    right = await (await listener.anext_connection()).aaccept()
    return await task, right


def test_coroutines(address):
    async def main():
        with copyrpc.Context() as context, context.listen(address, LANE, auto_accept=False) as listener:
            place = context.register(bytearray(1 << 16), "local_write")
            left, right = await both(context, listener)
            async with await right.agrant(place[1 << 15 :], "rwa") as own:
                there = await left.aopen_grant(bytes(own))
                place.memory[0:8] = b"x" * 8
                await left.awrite(place[0:8], there)
                assert await left.aread(place[8:16], there) == 8 and place.memory[8:16] == b"x" * 8
                place.memory[1 << 15 : (1 << 15) + 8] = bytes(8)
                assert await left.afetch_add(there, 5) == 0 and await left.acompare_swap(there, 5, 6) == 5
                # 500 writes, for which there is no room at once, and a call behind them.
                place.memory[0:500] = bytes(index & 255 for index in range(500))
                call = [left.awrite(place[index : index + 1], there.at(index)) for index in range(500)]
                call.append(left.acall(b"done", after=True))
                together = asyncio.gather(*call)
                request = await listener.areceive()
                assert bytes(place.memory[1 << 15 : (1 << 15) + 500]) == bytes(index & 255 for index in range(500))
                request.reply(b"seen")
                del request
                assert (await together)[-1] == b"seen"
                task = asyncio.ensure_future(left.aread(place[0:4096], there))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                task = asyncio.ensure_future(right.agrant(place[0:64], "r"))
                await until(lambda: right._lane.waiting or right._open_works() or task.done())
                task.cancel()
                await asyncio.wait([task])
            assert own.over and there.over
            second = await right.agrant(place[0:64], "r")
            await right.arevoke(second, timeout=60)
            with pytest.raises(copyrpc.Closed):
                await right.arevoke(second)
            await until(lambda: not context._pending)
            with pytest.raises(copyrpc.Closed):  # of another connection
                await left.aopen_grant(forged(bytes(48), magic=0x47505243, version=1, access=4, bytes=1))
            await left.adisconnect(60)

    asyncio.run(main())


def test_what_coroutines_have_begun_is_before(address):
    """A reply, and taking leave, too; more ops than there is room for at once."""

    async def main():
        with copyrpc.Context() as context, context.listen(address, LANE, auto_accept=False) as listener:
            place = context.register(bytearray(1 << 16), "local_write")
            left, right = await both(context, listener)
            there = await right.aopen_grant(bytes(await left.agrant(place[1 << 15 :], "w")))
            place.memory[0:500] = data(500)

            def begin():
                return [asyncio.ensure_future(right.awrite(place[index : index + 1], there.at(index))) for index in range(500)]

            call = asyncio.ensure_future(left.acall(b"fill it"))
            request = await listener.areceive()
            works = begin()
            await asyncio.sleep(0)
            await request.areply(b"done", after=True)
            assert await call == b"done" and place.memory[1 << 15 : (1 << 15) + 500] == data(500)
            await asyncio.gather(*works)
            place.memory[1 << 15 :] = bytes(1 << 15)
            works = begin()
            await asyncio.sleep(0)
            await right.adisconnect(60)
            assert [await work for work in works] == [None] * 500 and place.memory[1 << 15 : (1 << 15) + 500] == data(500)

    asyncio.run(main())


def test_documentation():
    """The section's programs, as they are printed."""
    with open(os.path.join(os.environ["TEST_SOURCE"], "docs/python.md")) as file:
        section = file.read().split("## Lanes")[1].split("\n## ")[0]
    for part in section.split("```python")[1:]:
        done = subprocess.run([*STRICT_PYTHON, "-c", part.split("```")[0]], stdout=subprocess.PIPE, text=True, timeout=60)
        told = [line.split("# ")[-1] for line in part.split("```")[0].splitlines() if line.strip().startswith("print(")]
        assert done.returncode == 0 and sorted(done.stdout.splitlines()) == sorted(told) != []


def test_the_client_of_the_documentation(address, tmp_path):
    """The Python client of docs/lanes.md, and its server in C, as they are printed."""
    with open(os.path.join(os.environ["TEST_SOURCE"], "docs/lanes.md")) as file:
        section = file.read().split("## A grant, a WRITE, a call")[1].split("\n## ")[0]
    library = os.path.join(os.environ["TEST_BUILD"], "capi")
    (tmp_path / "server.c").write_text(section.split("```c\n")[1].split("```")[0])
    headers = os.path.join(os.environ["TEST_SOURCE"], "capi")
    command = ["cc", "-I" + headers, "-o", tmp_path / "server", tmp_path / "server.c", "-L" + library, "-lcopyrpc", "-Wl,-rpath," + library]
    subprocess.run(command, check=True)
    server = subprocess.Popen([tmp_path / "server", address])
    try:
        deadline = time.monotonic() + 60
        while True:
            client = [*STRICT_PYTHON, "-c", section.split("```python\n")[1].split("```")[0], address]
            done = subprocess.run(client, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            if done.returncode == 0 or time.monotonic() > deadline or server.poll() is not None:
                break
    finally:
        server.kill()
        server.wait(60)
    assert done.stdout == "written by the client\n", done.stderr
