"""Endpoints that reconnect, in threads and coroutines, while their servers are killed, or ended, and started at random."""
import asyncio
import random
import signal
import threading
import time

from reconnecting import OPTIONS, Process, in_thread

import copyrpc

CLIENTS, SECONDS, SEED = 4, 6.0, 20261129


def test_servers_that_are_killed_at_random(tmp_path):
    """Each call ends once; those that are not idempotent were done at most once; all that are were answered."""
    random_ = random.Random(SEED)
    servers = [Process(tmp_path), Process(tmp_path)]
    for server in servers:
        server.start()
    addresses = [server.address for server in servers]
    results, lock, stop = {}, threading.Lock(), threading.Event()

    def end(name, result):
        with lock:
            assert name not in results, f"{name} has ended twice"
            results[name] = result

    def with_threads(client):
        seeded, number = random.Random(SEED + client), 0
        with copyrpc.connect(addresses, copyrpc.EndpointOptions(**OPTIONS), timeout=60) as endpoint:
            while not stop.is_set():
                idempotent, name = seeded.random() < 0.5, f"{client}.{number}"
                number += 1
                names = [f"{name}.{index}.{'i' if idempotent else 'o'}".encode() for index in range(seeded.choice((1, 1, 5, 40)))]
                answers = endpoint.call_many(names, idempotent=idempotent, return_exceptions=True)
                for one, answer in zip(names, answers):
                    end(one, answer)
            return endpoint.info().connections

    def with_coroutines(client):
        async def caller(endpoint, task):
            number = 0
            while not stop.is_set():
                idempotent = (number + task) % 2 == 0
                name = f"{client}.{task}.{number}.{'i' if idempotent else 'o'}".encode()
                number += 1
                try:
                    answer = await endpoint.acall(name, idempotent=idempotent)
                except copyrpc.CopyrpcError as error:
                    answer = error
                end(name, answer)

        async def main():
            async with copyrpc.Context() as context:
                endpoint = await context.aconnect(addresses, copyrpc.EndpointOptions(**OPTIONS), timeout=60)
                await asyncio.gather(*(caller(endpoint, task) for task in range(8)))
                return endpoint.info().connections

        return asyncio.run(main())

    clients = [in_thread(with_coroutines if client % 2 else with_threads, client) for client in range(CLIENTS)]
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        time.sleep(random_.uniform(0.05, 0.5))
        server = random_.choice(servers)
        server.end(signal.SIGKILL if random_.random() < 0.7 else signal.SIGTERM)
        time.sleep(random_.uniform(0, 0.1))
        server.start()
    stop.set()
    connections = [client() for client in clients]
    assert all(isinstance(count, int) for count in connections), connections
    done = {}
    for server in servers:
        server.end()
        for name in server.done():
            done[name] = done.get(name, 0) + 1
    assert sum(connections) > CLIENTS, "nobody had to come back"
    unknown = 0
    for name, result in results.items():
        if name.endswith(b".i"):
            assert result == name, f"{name}: {result!r}"
            assert done.get(name, 0) >= 1
        elif isinstance(result, bytes):
            assert result == name and done.get(name) == 1
        else:
            assert isinstance(result, copyrpc.Disconnected), f"{name}: {result!r}"
            assert done.get(name, 0) <= 1
            unknown += 1
    assert set(done) <= set(results)
    assert len(results) > 100
    print(f"{len(results)} calls, {unknown} unknown, {sum(connections)} connections")
