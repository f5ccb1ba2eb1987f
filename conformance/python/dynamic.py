"""dynamic.py: the verbs of DCIs and DCTs that other queues do not have. queues.py has those of all queues."""
import copyrpc


class Dynamic:
    """What a Runner has of them."""

    def do_dci_open(self, name, **options):
        self.own_queue(name, self.context.dci_queue(self.queue_options(**options)))

    def do_dct_open(self, name, **options):
        self.own_queue(name, self.context.dct_queue(self.queue_options(**options)))

    def own_queue(self, name, queue):
        self.name_queue(name, queue)
        self.begin(self.datagrams_life(name, queue))

    def do_dc_target_open(self, name, queue, gid, access_key=0, **numbers):
        self.things[name] = self.context.target(copyrpc.QueueAddress(gid=bytes.fromhex(gid), **numbers), access_key=access_key)

    async def do_stream_reset(self, queue, stream):
        if self.arrays:
            queue.reset_stream(stream)
        else:
            await queue.areset_stream(stream)


def one_of_dci(queue, places, opcode, words, flags):
    """The coroutine of one op."""
    target, remote = words["target"], copyrpc.Remote(words["remote"], words["remote_key"])
    how = {"stream": words["stream"], "fence": bool(flags["fence"])}
    wakes = {"immediate": words["immediate"] if opcode.endswith("_immediate") else None, "solicited": bool(flags["solicited"])}
    if opcode in ("send", "send_immediate"):
        return queue.asend(places, target, **wakes, **how)
    if opcode in ("write", "write_immediate"):
        return queue.awrite(places, remote, target, **wakes, **how)
    if opcode == "read":
        return queue.aread(places, remote, target, **how)
    if opcode == "compare_swap":
        return queue.acompare_swap(remote, words["compare"], words["operand"], target, **how)
    return queue.afetch_add(remote, words["operand"], target, **how)
