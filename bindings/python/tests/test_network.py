"""Options about the network: what is taken, from where, and what is refused; and calls, channels and datagrams that go by them."""
import dataclasses
import threading

import pytest
from conftest import Server

import copyrpc

NAMES = ("traffic_class", "service_level", "partition_key", "retry_timeout", "retry_count")


def port():
    """The port that contexts open."""
    with copyrpc.Context() as context:
        info = context.info()
    return next(device for device in copyrpc.devices() if (device.name, device.port) == (info.device, info.port))


def in_use(context):
    info = context.info()
    return tuple(getattr(info, name) for name in NAMES)


def test_without_options_the_port_decides():
    device = port()
    with copyrpc.Context() as context:
        assert in_use(context) == (0, 0, device.partition_key, 0, 0)
        assert context.info().grh_required == device.grh_required
    if device.ethernet:
        assert (device.partition_key, device.grh_required) == (0xFFFF, False)


def test_options_are_taken(address):
    key = port().partition_key
    options = {"traffic_class": 106, "service_level": 5, "partition_key": key, "retry_timeout": 18, "retry_count": 5}
    server = Server(address, **options)
    try:
        with copyrpc.Context(**options) as context:
            assert in_use(context) == (106, 5, key, 18, 5)
            endpoint = context.connect(server.address)
            assert bytes(endpoint.call(b"abc")) == b"abc"
            one, other = context.blob()[0], context.blob()[0]
            one.close()
            other.close()
    finally:
        server.close()


def test_channels_by_blobs_go_by_them():
    with copyrpc.Context(traffic_class=106, service_level=5, rails=True) as context:
        left, one = context.channel_blob()
        right, other = context.channel_blob()
        thread = threading.Thread(target=right.join, args=(one,))
        thread.start()
        left.join(other)
        thread.join(60)
        room = bytearray(100_000)
        receive = right.post_receive(room)
        left.send(b"x" * len(room))
        assert receive.wait() == len(room) and room == b"x" * len(room)
        left.close()
        right.close()


def test_the_environment_counts_where_nothing_is_said(monkeypatch):
    key = port().partition_key
    for name, value in zip(NAMES, ("0x6a", "3", hex(key), "20", "5")):
        monkeypatch.setenv("COPYRPC_" + name.upper(), value)
    with copyrpc.Context() as context:
        assert in_use(context) == (106, 3, key, 20, 5)
    with copyrpc.Context(traffic_class=1, service_level=2, retry_timeout=4, retry_count=3) as context:
        assert in_use(context) == (1, 2, key, 4, 3)
    monkeypatch.setenv("COPYRPC_TRAFFIC_CLASS", "loud")
    with pytest.raises(copyrpc.InvalidArgument, match="COPYRPC_TRAFFIC_CLASS=loud"):
        copyrpc.Context()


def test_the_gid_index_of_the_environment(monkeypatch):
    index = port().gid_index
    monkeypatch.setenv("COPYRPC_GID_INDEX", str(index))
    with copyrpc.Context(rails=True) as context:
        assert context.info().gid_index == index
        assert context.rails()[0].gid_index == index
    monkeypatch.setenv("COPYRPC_GID_INDEX", "255")
    with pytest.raises(copyrpc.InvalidArgument, match="no GID at index 255"):
        copyrpc.Context()
    monkeypatch.delenv("COPYRPC_GID_INDEX")
    with copyrpc.Context(gid_index=index, rails=True, rails_gid_index=True) as context:
        assert [rail.gid_index for rail in context.rails()] == [index] * len(context.rails())


@pytest.mark.parametrize("wrong", [{"traffic_class": 256}, {"service_level": 16}, {"partition_key": 0x8000}, {"partition_key": 0x10000},
                                   {"partition_key": 0x8123}, {"retry_timeout": 32}, {"retry_count": 8}, {"rails_gid_index": True}])
def test_what_is_wrong_is_named(wrong):
    name = next(iter(wrong))
    words = {"partition_key": "partition_key|P_Key 0x8123; it has", "rails_gid_index": "CRPC_CONTEXT_RAILS_GID_INDEX"}
    with pytest.raises(copyrpc.InvalidArgument, match=words.get(name, name)):
        copyrpc.Context(**wrong)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_types(name):
    for value, family in ((-1, ValueError), (1 << 32, ValueError), ("1", TypeError), (1.0, TypeError), (None, TypeError)):
        with pytest.raises(family):
            copyrpc.Context(**{name: value})


def test_an_address_keeps_that_a_port_requires_a_grh():
    with copyrpc.Context(queues=True) as context, context.datagram_queue() as queue:
        address = queue.address()
        assert address.grh_required == context.info().grh_required
        with context.target(dataclasses.replace(address, grh_required=True)) as target:
            assert target.address().queue_pair_number == address.queue_pair_number
        for required, flags in ((False, 0), (True, 1)):
            assert dataclasses.replace(address, grh_required=required).to_c().flags == flags
