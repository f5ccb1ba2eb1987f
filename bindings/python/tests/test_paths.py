"""What the device is told of the way of packets, as simnic shows it, on whatever links its ports have: of endpoints with lanes, channels
over two rails, and queues, connected by rdma_cm, by blobs and by addresses; with the options of the network and without."""
import json
import os
import subprocess
import threading

import pytest
from conftest import channels_in, endpoints_in, queues_in

import copyrpc

SIMNIC = os.environ.get("TEST_SIMNIC") or os.environ["TEST_BUILD"] + "/simnic/simnic"
CHOSEN = {"traffic_class": 106, "service_level": 5, "retry_timeout": 18, "retry_count": 5}


def shown():
    """The words for simnic's links, and the paths of the queue pairs of this process that are connected."""
    said = json.loads(subprocess.run([SIMNIC, "ctl", "stats", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    pairs = [pair for process in said["processes"] if process["pid"] == os.getpid() for pair in process["queue_pairs"]]
    return said["link"].split(","), [(pair["rail"], pair["path"]) for pair in pairs if pair["state"] == "RTS" and not pair["destroyed"]]


def settled(count, *channels):
    """The paths, once there are so many."""
    for _ in range(600):
        for channel in channels:
            list(channel.events(0))
        paths = shown()[1]
        if len(paths) >= count:
            break
        threading.Event().wait(0.05)
    return paths


def joined(context, blob):
    left, one = blob()
    right, other = blob()
    left._join(other)
    right.join(one, timeout=60)
    with context._use:
        context._wait(left._settled)
    return left, right


def endpoints_by_rdma_cm(context, address):
    return endpoints_in(context, address)


def endpoints_by_blobs(context, address):
    return joined(context, lambda: context.blob(copyrpc.EndpointOptions(lane=True)))


def channels_by_rdma_cm(context, address):
    with context.listen_channels(address, copyrpc.ChannelOptions(queue_pairs=2)) as listener:
        return channels_in(context, listener, copyrpc.ChannelOptions(queue_pairs=2))


def channels_by_blobs(context, address):
    return joined(context, lambda: context.channel_blob(copyrpc.ChannelOptions(queue_pairs=2)))


def queues_by_rdma_cm(context, address):
    with context.listen_queues(address) as listener:
        return queues_in(context, listener)


def queues_by_blobs(context, address):
    return joined(context, context.queue_blob)


def queues_by_addresses(context, address):
    left, right = context.queue_blob()[0], context.queue_blob()[0]
    of_left, of_right = left.address(), right.address()
    thread = threading.Thread(target=right.join_address, args=(of_left,), kwargs={"timeout": 60})
    thread.start()
    left.join_address(of_right, timeout=60)
    thread.join(60)
    return left, right


# By whom it connects; how many queue pairs there are; whether rdma_cm connects the first two; and the timeout by default.
WAYS = [
    (endpoints_by_rdma_cm, 4, 2, 14),
    (endpoints_by_blobs, 4, 0, 14),
    (channels_by_rdma_cm, 8, 2, 17),
    (channels_by_blobs, 8, 0, 17),
    (queues_by_rdma_cm, 2, 2, 14),
    (queues_by_blobs, 2, 0, 14),
    (queues_by_addresses, 2, 0, 14),
]


def connected(context, way, address, count):
    """The paths, once all are there: rails and lanes come up by themselves."""
    pair = way(context, address)
    for _ in range(600):
        for one in pair:
            if isinstance(one, copyrpc.Channel):
                list(one.events(0))
            elif isinstance(one, copyrpc.Endpoint):
                one.context.poll(copyrpc.CompletionArray(8))
        links, paths = shown()
        if len(paths) >= count:
            break
        threading.Event().wait(0.05)
    for one in pair:
        one.close()
    assert len(paths) == count, paths
    return links, paths


@pytest.mark.parametrize("chosen", [CHOSEN, {}], ids=["options", "defaults"])
@pytest.mark.parametrize(("way", "count", "by_rdma_cm", "timeout"), WAYS, ids=[way[0].__name__ for way in WAYS])
def test_every_queue_pair(address, way, count, by_rdma_cm, timeout, chosen):
    with copyrpc.Context(rails=True, queues=True, **chosen) as context:
        links, paths = connected(context, way, address, count)
        keys = {context.info().partition_key} | {device.partition_key for device in copyrpc.devices()}
        of_route = next((int(word[3:]) for word in links if word.startswith("sl=")), 0)
        routed = 0
        for rail, path in paths:
            if "ethernet" in links or {"grh", f"grh{rail}"} & set(links):
                assert path["grh"], path
            if "ib" in links and not {"grh", f"grh{rail}", "subnets"} & set(links) and not chosen:
                assert not path["grh"] or "grh0" in links or "grh1" in links, path
            assert path["partition"] in keys or by_rdma_cm, path
            assert path["timeout"] == chosen.get("retry_timeout", timeout), path
            assert path["retry_count"] == chosen.get("retry_count", 6), path
            if path["grh"]:
                assert path["traffic_class"] == chosen.get("traffic_class", 0), path
            if chosen:
                assert path["service_level"] == chosen["service_level"], path
            else:
                assert path["service_level"] in (0, of_route), path
                routed += path["service_level"] == of_route
        if not chosen and of_route:
            assert routed == (count if by_rdma_cm else 0), paths


def test_who_accepts_answers_in_the_class_of_who_connects(address):
    """Over all rails of Ethernet. On InfiniBand, the class of a route is what the subnet manager makes of it."""
    with copyrpc.Context(rails=True) as serving, copyrpc.Context(rails=True, traffic_class=106) as context:
        with serving.listen_channels(address) as listener:
            accepted = []
            thread = threading.Thread(target=lambda: accepted.append(listener.accept(timeout=60)))
            thread.start()
            channel = context.connect_channel(listener.address)
            thread.join(60)
            paths = settled(4, channel, *accepted)
            links = shown()[0]
            channel.close()
            accepted[0].close()
    classes = [path["traffic_class"] for _, path in paths if path["grh"]]
    assert len(paths) == 4
    if "ethernet" in links:
        assert classes == [106] * 4, paths
    else:
        assert set(classes) <= {0, 106}, paths


@pytest.fixture
def infiniband():
    links = shown()[0]
    if "ib" not in links:
        pytest.skip("Ethernet has one partition")
    return links


def test_a_partition_by_its_key(infiniband, address):
    for key in (0x8011, 0x8022):
        with copyrpc.Context(partition_key=key, queues=True, rails=True) as context:
            assert context.info().partition_key == key
            for way, count, by_rdma_cm, _ in WAYS:
                if not by_rdma_cm:
                    _, paths = connected(context, way, address, count)
                    assert {path["partition"] for _, path in paths} == {key}


def test_an_address_in_another_partition(infiniband, address):
    """The interface decides what rdma_cm connects, so another partition is refused, before the peer hears of it."""
    of_address, other = (0x8011, 0x8022) if "limited" in infiniband else (0xFFFF, 0x8011)
    with copyrpc.Context(partition_key=of_address) as context:
        left, right = endpoints_in(context, address, None, None)
        assert {path["partition"] for _, path in shown()[1]} == {of_address}
        left.close()
        right.close()
    with copyrpc.Context() as serving, copyrpc.Context(partition_key=other) as context, serving.listen(address) as listener:
        with pytest.raises(copyrpc.Unreachable, match=f"in partition 0x{of_address:04x}, and this context in 0x{other:04x}"):
            context.connect(listener.address)
