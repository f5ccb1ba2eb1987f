"""The memory of channels' messages: regions, dma-bufs, and buffers that are registered for one message."""
import ctypes
import mmap
import os
import random

import pytest
from conftest import LARGE, channels_in, data

import copyrpc

numpy = pytest.importorskip("numpy")


def test_regions_are_found(pair, context):
    left, right = pair
    memory = bytearray(1 << 20)
    with context.register(memory, "local_write", "remote_write") as region:
        view = memoryview(memory)
        transfer = right.post_receive(view[500_000 : 500_000 + LARGE])
        assert context.cache_info().misses == 0
        left.send(view[:LARGE])
        transfer.wait()
        assert context.cache_info().misses == 0
        held = right.post_receive(view[:10])
        with pytest.raises(copyrpc.InvalidArgument) as caught:
            region.close()
        assert caught.value.status_name == "CRPC_E_BUSY"
        left.send(b"x")
        held.wait()
        assert region.address > 0 and region.bits > 0
        view.release()
    # A region that may not be received into is as good as none.
    with context.register(memory, "local_write"):
        transfer = right.post_receive(memory)
        assert context.cache_info().misses > 0 and left.send(b"y") == transfer.wait()


def test_memory_of_another_device(pair, context):
    """On simnic, shared memory that this process has no right to stands for a GPU's: who touches it crashes."""
    left, right = pair
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    descriptor = os.memfd_create("device")
    os.truncate(descriptor, 8192)
    address = libc.mmap(None, 8192, 0, mmap.MAP_SHARED, descriptor, 0)
    region = context.register_device(address, 8192, "local_write", "remote_write")
    assert region.address == address and len(region) == 8192
    assert region.info().access == ("local_write", "remote_write", "device")
    with pytest.raises(copyrpc.Closed):
        _ = region.memory
    ops, done = copyrpc.ChannelOpArray(1), copyrpc.CompletionArray(4)
    os.pwrite(descriptor, b"from another device", 100)
    received = bytearray(100)
    transfer = right.post_receive(received)
    ops.set(0, opcode=copyrpc.CHANNEL_SEND, channel=left.bits, region=region.bits, address=address + 100, bytes=19)
    assert context.submit(ops) == 1
    while not context.poll(done):
        context.wait(1)
    assert transfer.wait() == 19 and received[:19] == b"from another device"
    ops.set(0, opcode=copyrpc.CHANNEL_RECEIVE, channel=right.bits, region=region.bits, address=address, bytes=100)
    assert context.submit(ops) == 1
    left.send(b"to another device")
    while not context.poll(done):
        context.wait(1)
    assert os.pread(descriptor, 17, 0) == b"to another device"
    region.close()
    for wrong in ((0, 8192), (address, 0), (-1, 8192)):
        with pytest.raises(ValueError):
            context.register_device(*wrong)
    with pytest.raises(ValueError):
        context.register_device(address, 8192, "host")
    libc.munmap(address, 8192)
    os.close(descriptor)


def test_dmabuf(pair, context):
    left, right = pair
    descriptor = os.memfd_create("dmabuf")  # simnic takes any file that can be mapped
    os.truncate(descriptor, 8192)
    try:
        region = context.register_dmabuf(descriptor, 4096, "local_write", "remote_write", offset=4096, address=1 << 40)
    except copyrpc.Unsupported:
        pytest.skip("no dma-bufs here")
    op, done = copyrpc.ChannelOpArray(1), copyrpc.CompletionArray(4)
    op.set(0, opcode=copyrpc.CHANNEL_RECEIVE, channel=right.bits, region=region.bits, address=(1 << 40) + 10, bytes=100)
    assert context.submit(op) == 1
    left.send(b"to another device")
    while not context.poll(done):
        context.wait(1)
    assert os.pread(descriptor, 17, 4096 + 10) == b"to another device"

    # From there, too: alone, and in a message of several buffers. The processor cannot read what is there, however short it is.
    def send(*places):
        ops, left_open = copyrpc.ChannelOpArray(len(places)), len(places)
        for index, (tag, offset, size) in enumerate(places):
            ops.set(index, opcode=copyrpc.CHANNEL_SEND, channel=left.bits, tag=tag, region=region.bits, address=(1 << 40) + offset, bytes=size)
        assert context.submit(ops) == len(places)
        while left_open:
            left_open -= context.poll(done)

    alone, several = bytearray(100), [bytearray(100), bytearray(100)]
    transfer = right.post_receive(alone)
    send((0, 13, 7))
    assert transfer.wait() == 7 and alone[:7] == b"another"
    transfer = right.post_receive(several, tags=[1, 2])
    send((2, 13, 7), (1, 10, 2))
    assert transfer.wait() == [2, 7] and several[0][:2] == b"to" and several[1][:7] == b"another"
    region.close()
    os.close(descriptor)


def test_memory_that_is_mapped_anew(pair, context):
    """What was registered for a buffer ends with it: the next buffer at its address is other pages."""
    left, right = pair
    size = 1 << 20
    addresses = set()
    for turn in range(20):
        source, target = mmap.mmap(-1, size), mmap.mmap(-1, size)
        source[:] = data(size, turn)
        addresses.add(numpy.frombuffer(target, "u1").ctypes.data)
        transfer = right.post_receive(target)
        left.send(source)
        transfer.wait()
        del transfer
        assert target[:] == data(size, turn), f"turn {turn}"
        assert context.cache_info().registrations == 0
        source.close()
        target.close()
    assert len(addresses) < 20, "no address came twice, so this has tested nothing"


def test_memory_that_overlaps(pair, context):
    """Buffers that share pages, done in any order, leave nothing registered."""
    left, right = pair
    dice = random.Random(7)
    memory = memoryview(bytearray(40 * 4096))
    source = memoryview(bytearray(b"s" * 40 * 4096))
    for _ in range(60):
        transfers = []
        for tag in range(dice.randrange(1, 20)):
            begin = dice.randrange(0, 39 * 4096)
            size = dice.randrange(1, 40 * 4096 - begin)
            transfers.append(right.post_receive(memory[begin : begin + size], tag))
            transfers.append(left.post_send(source[begin : begin + size // 2], tag))
        dice.shuffle(transfers)
        for transfer in transfers:
            transfer.wait()
        assert context.cache_info().registrations == 0


def test_keep_registered(address):
    memory = bytearray(100_000)
    with copyrpc.Context(rails=True, keep_registered=True) as context, context.listen_channels(address) as listener:
        left, right = channels_in(context, listener)
        for _ in range(5):
            transfer = right.post_receive(memory)
            left.send(b"x" * 70_000)
            transfer.wait()
        info = context.cache_info()
        assert info.registrations == 1 and info.hits >= 4 or info.registrations == 2
        transfer = right.post_receive(memory)
        with pytest.raises(copyrpc.InvalidArgument) as caught:
            context.forget(memory)
        assert caught.value.status_name == "CRPC_E_BUSY"
        left.send(b"")
        transfer.wait()
        assert context.forget(b"") == 0 and context.forget(memory) == 1
        context.forget()
        assert context.cache_info().registrations == 0
