"""What the device has in force of ECE, as simnic shows it, for every queue pair: of endpoints with lanes, channels over two rails, and
queues, connected by rdma_cm and by blobs; between contexts that negotiate it and contexts that do not, old peers, and peers that lie. The
devices offer other options each: rail 0 those of simnic's card, rail 1 what the faults of this session say."""
import json
import os
import subprocess
import threading

import pytest

import copyrpc

SIMNIC = os.environ.get("TEST_SIMNIC") or os.environ["TEST_BUILD"] + "/simnic/simnic"
LANE = copyrpc.EndpointOptions(lane=True)
TWO_QUEUE_PAIRS = copyrpc.ChannelOptions(queue_pairs=2)
FEATURE_AT, FEATURE, TOKEN_BYTES_AT, TOKEN_AT = 48, 0x0800, 47, 56
VENDOR = 0x15B3


def simnic(*words):
    return subprocess.run([SIMNIC, "ctl", *words], check=True, stdout=subprocess.PIPE).stdout


def agreed(one, other):
    """What simnic's device makes of it, and what its README says."""
    version = min(one >> 28, other >> 28)
    algorithms = one & other & 0x1FE
    return version << 28 | (algorithms & -algorithms) | (one & other & 1) if version else 0


@pytest.fixture(scope="module")
def offered():
    """By the queue pairs of each rail."""
    found = [0x30000007, 0x30000007]
    for word in simnic("fault").decode().strip().split(","):
        if "=ece:" in word:
            found[int(word[4])] = int(word.split(":")[1], 16)
    return found


@pytest.fixture
def refused():
    """Whether the devices refuse what they have offered."""
    return b"quirk=ece" in simnic("fault")


def in_force():
    """Of each queue pair of this process that is connected: its rail, and its options."""
    said = json.loads(simnic("stats", "--json"))
    pairs = [pair for process in said["processes"] if process["pid"] == os.getpid() for pair in process["queue_pairs"]]
    return sorted((pair["rail"], pair["path"]["ece"]) for pair in pairs if pair["state"] == "RTS" and not pair["destroyed"])


def polled(*ends):
    for end in ends:
        if isinstance(end, copyrpc.Channel):
            list(end.events(0))
        elif isinstance(end, copyrpc.Endpoint):
            end.context.poll(copyrpc.CompletionArray(8))


def settled(count, *ends):
    """What is in force, once so many queue pairs are connected."""
    for _ in range(600):
        polled(*ends)
        found = in_force()
        if len(found) >= count:
            break
        threading.Event().wait(0.05)
    assert len(found) == count, found
    return found


def alongside(work):
    """Starts it in a thread; the result waits for its end."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()

    def result():
        thread.join(60)
        return results[0]

    return result


def joined(one, other, change=lambda blob: blob):
    """`change`: of the blob of `other` on its way."""
    (left, of_left), (right, of_right) = one, other
    joining = alongside(lambda: right.join(of_left, timeout=60))
    left.join(change(of_right), timeout=60)
    joining()
    return left, right


def endpoints_by_rdma_cm(one, other, address):
    with other.listen(address, auto_accept=False) as listener:
        connecting = alongside(lambda: one.connect(listener.address, LANE, timeout=60))
        right = listener.next_connection(60).accept(LANE, timeout=60)
        return connecting(), right


def endpoints_by_blobs(one, other, address):
    return joined(one.blob(LANE), other.blob(LANE))


def channels_by_rdma_cm(one, other, address):
    with other.listen_channels(address, TWO_QUEUE_PAIRS) as listener:
        accepting = alongside(lambda: listener.accept(timeout=60))
        left = one.connect_channel(listener.address, TWO_QUEUE_PAIRS)
        return left, accepting()


def channels_by_blobs(one, other, address):
    return joined(one.channel_blob(TWO_QUEUE_PAIRS), other.channel_blob(TWO_QUEUE_PAIRS))


def queues_by_rdma_cm(one, other, address):
    with other.listen_queues(address) as listener:
        accepting = alongside(lambda: listener.accept(timeout=60))
        left = one.queue_connect(listener.address)
        return left, accepting()


def queues_by_blobs(one, other, address):
    return joined(one.queue_blob(), other.queue_blob())


# And on which rails the queue pairs of each end are.
WAYS = [
    (endpoints_by_rdma_cm, (0, 0)),
    (endpoints_by_blobs, (0, 0)),
    (channels_by_rdma_cm, (0, 0, 1, 1)),
    (channels_by_blobs, (0, 0, 1, 1)),
    (queues_by_rdma_cm, (0,)),
    (queues_by_blobs, (0,)),
]
EVERY_WAY = pytest.mark.parametrize(("way", "rails"), WAYS, ids=[way.__name__ for way, _ in WAYS])


def closed(*ends):
    for end in ends:
        end.close()


@EVERY_WAY
@pytest.mark.parametrize("ours", [True, False, None])
@pytest.mark.parametrize("theirs", [True, False])
def test_every_queue_pair(address, offered, refused, way, rails, ours, theirs):
    common = {"rails": True, "queues": True, "log_level": "warning"}
    with copyrpc.Context(ece=ours, **common) as one, copyrpc.Context(ece=theirs, **common) as other:
        ends = way(one, other, address)
        found = settled(2 * len(rails), *ends)
        both = ours is not False and theirs and not refused
        assert found == sorted(2 * [(rail, agreed(offered[rail], offered[rail]) if both else 0) for rail in rails])
        closed(*ends)
        told = [[entry.message for entry in context.log() if "ECE" in entry.message] for context in (one, other)]
        expected = ours is not False and theirs and refused and any(offered[rail] for rail in rails)
        assert bool(told[0] + told[1]) == bool(expected), told
        for lines in told:
            assert len(set(lines)) == len(lines), "each device is told of once"


@pytest.mark.parametrize("way", [endpoints_by_blobs, queues_by_blobs], ids=lambda way: way.__name__)
def test_devices_that_offer_different_options(offered, refused, way):
    """From the one to the other."""
    with copyrpc.Context("mlx5_0", queues=True) as one, copyrpc.Context("mlx5_1", queues=True) as other:
        ends = way(one, other, None)
        count = 1 if way is queues_by_blobs else 2
        options = 0 if refused else agreed(*offered)
        assert settled(2 * count, *ends) == sorted([(0, options), (1, options)] * count)
        closed(*ends)


def test_rails_whose_devices_offer_different_options(offered, refused):
    """The rails of the one are those of the other in the other order."""
    with copyrpc.Context(rails=["mlx5_0", "mlx5_1"]) as one, copyrpc.Context(rails=["mlx5_1", "mlx5_0"]) as other:
        ends = channels_by_blobs(one, other, None)
        options = 0 if refused else agreed(*offered)
        assert settled(8, *ends) == sorted([(0, options), (1, options)] * 4)
        closed(*ends)


def test_a_rail_that_comes_back(address, offered, refused):
    """Has other queue pairs, which negotiate again."""
    options = copyrpc.ChannelOptions(queue_pairs=2, rail_retry=0.02, retry_timeout=10, retry_count=4)
    with copyrpc.Context(rails=True) as one, copyrpc.Context(rails=True) as other:
        left, right = joined(one.channel_blob(options), other.channel_blob(options))
        wanted = sorted(4 * [(rail, 0 if refused else agreed(offered[rail], offered[rail])) for rail in (0, 1)])
        quirks = [word for word in simnic("fault").decode().strip().split(",") if word == "quirk=ece"]
        assert settled(8, left, right) == wanted
        for rail in (0, 1):
            before = set(numbers(rail))
            simnic("fault", ",".join([f"rail{rail}=down", *quirks]))
            for _ in range(600):
                polled(left, right)
                if not before & set(numbers(rail)):
                    break
                threading.Event().wait(0.05)
            simnic("fault", ",".join(["none", *quirks]))
            assert settled(8, left, right) == wanted
            assert not before & set(numbers(rail))
        closed(left, right)


def numbers(rail):
    said = json.loads(simnic("stats", "--json"))
    pairs = [pair for process in said["processes"] if process["pid"] == os.getpid() for pair in process["queue_pairs"]]
    return [pair["qpn"] for pair in pairs if pair["state"] == "RTS" and not pair["destroyed"] and pair["rail"] == rail]


# ---- Blobs of others ----


def sealed(blob):
    """With the checksum that it should have."""
    value = 0x811C9DC5
    for byte in blob[:100]:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return bytes(blob[:100]) + value.to_bytes(4, "little")


def with_features(blob, features, tail):
    return sealed(blob[:FEATURE_AT] + features.to_bytes(2, "little") + blob[FEATURE_AT + 2 : TOKEN_AT + 8] + tail + blob[TOKEN_AT + 16 :])


def of_an_old_library(blob):
    """Which does not know of the feature, and leaves what follows a token as it is."""
    features = int.from_bytes(blob[FEATURE_AT : FEATURE_AT + 2], "little")
    assert features & FEATURE
    return with_features(blob, features & ~FEATURE, os.urandom(8))


def that_says(vendor, options):
    def change(blob):
        features = int.from_bytes(blob[FEATURE_AT : FEATURE_AT + 2], "little")
        return with_features(blob, features | FEATURE, vendor.to_bytes(4, "little") + options.to_bytes(4, "little"))

    return change


def test_where_it_is_in_a_blob(offered):
    with copyrpc.Context() as context:
        for token in (b"", b"12345678", b"123456789", b"0123456789abcdef"):
            end, blob = context.blob(copyrpc.EndpointOptions(token=token))
            told = VENDOR.to_bytes(4, "little") + offered[0].to_bytes(4, "little") if offered[0] else bytes(8)
            assert blob[TOKEN_BYTES_AT] == len(token)
            assert blob[TOKEN_AT : TOKEN_AT + 16] == (token.ljust(8, b"\0") + told if len(token) <= 8 else token.ljust(16, b"\0"))
            end.close()
    with copyrpc.Context(ece=False) as context:
        end, blob = context.blob()
        assert blob[TOKEN_AT : TOKEN_AT + 16] == bytes(16)
        assert not int.from_bytes(blob[FEATURE_AT : FEATURE_AT + 2], "little") & FEATURE
        end.close()


@pytest.mark.parametrize(
    "change",
    [of_an_old_library, that_says(0, 0), that_says(0x1234, 0x30000007), that_says(VENDOR, 0x0FFFFFFF), that_says(0xFFFFFFFF, 0xFFFFFFFF)],
    ids=["old", "none", "another vendor", "no version", "anything"],
)
def test_a_blob_without_what_this_side_has(change):
    """An endpoint and its lane, over which there are calls. A side that does not tell the truth has what it has set itself."""
    with copyrpc.Context() as one, copyrpc.Context() as other:
        left, right = one.blob(), other.blob()
        ends = [left[0], right[0]]
        of_left, of_right = change(left[1]), change(right[1])
        joining = alongside(lambda: ends[1].join(of_left, timeout=60))
        ends[0].join(of_right, timeout=60)
        joining()
        assert settled(2, *ends) == [(0, 0), (0, 0)]
        closed(*ends)


def test_a_blob_that_promises_too_much(offered, refused):
    with copyrpc.Context() as one, copyrpc.Context() as other:
        left, right = joined(one.blob(), other.blob(), that_says(VENDOR, 0xFFFFFFFF))
        assert settled(2, left, right) == 2 * [(0, 0 if refused else agreed(offered[0], offered[0]))]
        closed(left, right)


def test_a_token_that_leaves_no_room(offered, refused):
    """Only the queue pair that the blobs connect does without."""
    options = copyrpc.EndpointOptions(lane=True, token=b"123456789")
    with copyrpc.Context() as one, copyrpc.Context() as other:
        left, right = joined(one.blob(options), other.blob(LANE))
        assert sorted(settled(4, left, right)) == sorted(2 * [(0, 0)] + 2 * [(0, 0 if refused else agreed(offered[0], offered[0]))])
        closed(left, right)


def test_the_environment(monkeypatch, offered, refused):
    monkeypatch.setenv("COPYRPC_ECE", "off")
    for ece, wanted in ((None, 0), (True, agreed(offered[0], offered[0]))):
        with copyrpc.Context(ece=ece) as one, copyrpc.Context(ece=ece) as other:
            left, right = joined(one.blob(), other.blob())
            assert settled(2, left, right) == 2 * [(0, 0 if refused else wanted)]
            closed(left, right)
    monkeypatch.setenv("COPYRPC_ECE", "perhaps")
    with pytest.raises(copyrpc.InvalidArgument, match="COPYRPC_ECE=perhaps"):
        copyrpc.Context()
