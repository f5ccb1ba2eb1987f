"""datagrams.py: the verbs of queues for datagrams, and of their targets. queues.py has those of all queues."""
import asyncio

from words import event, status_of

import copyrpc


def sent_from(done):
    """The number of the queue pair that has sent what a receive has taken; None of what is no datagram."""
    if done.flags & copyrpc.COMPLETION_OF_DCT:
        return None
    return done.token & 0xFFFFFFFF if done.payload_bytes and done.token else None


class Datagrams:
    """What a Runner has of them. `letter` is the datagram that came last: its queue, and what target_of takes."""

    def do_datagrams_open(self, name, **options):
        queue = self.context.datagram_queue(self.queue_options(**options))
        self.name_queue(name, queue)
        self.begin(self.datagrams_life(name, queue))

    async def datagrams_life(self, name, queue):
        while queue.error is None:
            await asyncio.sleep(0.002)
        if not isinstance(queue.error, copyrpc.Closed):
            event("disconnected", endpoint=name, status="CRPC_OK" if queue.error.status == 0 else status_of(queue.error))

    def do_target_open(self, name, queue, gid, queue_key=0, **numbers):
        self.things[name] = self.context.target(copyrpc.QueueAddress(gid=bytes.fromhex(gid), **numbers), queue_key=queue_key)

    def do_target_of(self, name):
        queue, *what = self.letter
        self.things[name] = queue.target_of(*what)

    def do_target_address(self, target):
        return self.address_fields(target.address())

    def do_target_close(self, target):
        target.close()
