"""Exceptions that signal handlers raise, anywhere in the package: no hang, no op that is lost, nothing that comes twice.

TEST_INTERRUPTS is how many of them a storm has; the default is for every day."""
import asyncio
import contextlib
import dis
import faulthandler
import gc
import os
import random
import signal
import sys
import threading

import pytest

import copyrpc

# Python 3.9 runs signal handlers before nearly every instruction.
RUNS_HANDLERS_ANYWHERE = sys.version_info < (3, 10)

INTERRUPTS = int(os.environ.get("TEST_INTERRUPTS", "300"))
PACKAGE = os.path.dirname(copyrpc.__file__)
HANG_SECONDS = 120 + INTERRUPTS / 20


class Interrupted(BaseException):
    """As KeyboardInterrupt is, without what asyncio does for that."""


def interrupt(*ignored):
    raise Interrupted


class Storm:
    """Raises Interrupted in the main thread, every now and then, where that is in the package."""

    def __init__(self):
        self.seed = random.randrange(1 << 32)
        print(f"# seed {self.seed}")
        self.random = random.Random(self.seed)
        self.count = 0

    def over(self):
        return self.count >= INTERRUPTS

    def again(self):
        if not self.over():
            signal.setitimer(signal.ITIMER_REAL, self.random.choice((0.00002, 0.0002, 0.002)) * (0.5 + self.random.random()))

    def strike(self, number, frame):
        self.again()
        name = frame.f_code.co_name
        # What comes out of __del__ gets to nobody: pytest keeps it, with its context, and the payloads that are looked at there.
        if name != "__del__" and (frame.f_code.co_filename.startswith(PACKAGE) or name == "handler"):
            self.count += 1
            raise Interrupted

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.strike)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        gc.collect()
        gc.freeze()  # collecting what other tests left takes longer than the time between two strikes
        self.again()
        return self

    def __exit__(self, *ignored):
        self.count = INTERRUPTS
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
        gc.unfreeze()
        faulthandler.cancel_dump_traceback_later()


def joined(threads):
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_storm_on_calls_of_threads(server):
    with copyrpc.Context() as context:
        endpoint = context.connect(server.address)
        wrong, done, over = [], [0, 0], threading.Event()

        def work(index):
            while not over.is_set():
                request = b"%d of %d" % (done[index], index)
                try:
                    if endpoint.call(request, timeout=60) != request:
                        wrong.append(request)
                except BaseException as error:
                    wrong.append(error)
                    return
                done[index] += 1

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        calls = 0
        with Storm() as storm:
            while not storm.over():
                calls += 1
                request = b"main %d" % calls
                with contextlib.suppress(Interrupted):
                    if calls % 3:
                        assert endpoint.call(request, timeout=60) == request
                    else:
                        assert endpoint.call_many([request] * 5, timeout=60) == [request] * 5
        over.set()
        joined(threads)
        assert not wrong and all(done)
        assert endpoint.call(b"alive", timeout=60) == b"alive"
        for _ in range(1000):
            if not context._pending:
                break
            endpoint.call(b"so that what was canceled is heard of", timeout=60)
        assert not context._pending and not context._batches and not context._followers and context._leader is None


def test_a_storm_on_an_event_loop(server):
    async def main():
        loop = asyncio.get_running_loop()
        strange = []
        loop.set_exception_handler(
            lambda loop, about: None if isinstance(about.get("exception"), Interrupted) else strange.append(about)
        )
        with copyrpc.Context() as context:
            endpoint = await context.aconnect(server.address)

            async def work(name):
                calls = 0
                while not storm.over():
                    calls += 1
                    request = b"%d of %d" % (calls, name)
                    with contextlib.suppress(Interrupted):
                        assert await endpoint.acall(request, timeout=60) == request

            with Storm() as storm:
                await asyncio.gather(*map(work, range(8)))
            assert await endpoint.acall(b"alive", timeout=60) == b"alive"
            for _ in range(1000):
                if not context._pending:
                    break
                await endpoint.acall(b"so that what was canceled is heard of", timeout=60)
            assert not context._pending and not context._attachment.outbox and not context._attachment.waiters and not strange

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="serve may forget a request if a handler raises as `except` begins: docs/python.md")
def test_a_storm_on_a_server(address):
    with copyrpc.Context() as context:
        listener = context.listen(address)
        ended = {bytes: 0, copyrpc.Dropped: 0}
        wrong, over = [], threading.Event()

        def client():
            try:
                with copyrpc.connect(address) as endpoint:
                    while not over.is_set():
                        request = b"%d" % sum(ended.values())
                        try:
                            if endpoint.call(request, timeout=60) != request:
                                wrong.append(request)
                            ended[bytes] += 1
                        except copyrpc.Dropped:
                            ended[copyrpc.Dropped] += 1
            except BaseException as error:
                wrong.append(error)

        def handler(request):
            part = request.payload[:]
            return bytes(part)

        thread = threading.Thread(target=client)
        thread.start()
        with Storm() as storm:
            while not storm.over():
                with contextlib.suppress(Interrupted):
                    listener.serve(handler)
        over.set()
        stopper = threading.Thread(target=lambda: (thread.join(60), listener.stop()))
        stopper.start()
        listener.serve(handler)
        joined([thread, stopper])
        assert not wrong and all(ended.values())


def test_a_storm_on_channels(address):
    with copyrpc.Context(rails=True) as context, copyrpc.Context(rails=True) as other:
        listener = other.listen_channels(address)
        came, wrong = [], []

        def receiver():
            try:
                channel = listener.accept(timeout=60)
                room = bytearray(8)
                while True:
                    channel.receive(room)
                    came.append(int.from_bytes(room, "little"))
                    if came[-1] == 0:
                        return
            except BaseException as error:
                wrong.append(error)

        thread = threading.Thread(target=receiver)
        thread.start()
        channel = context.connect_channel(address)
        number, sent = 0, []
        with Storm() as storm:
            while not storm.over():
                number += 1
                with contextlib.suppress(Interrupted):
                    if number % 3:
                        channel.send(number.to_bytes(8, "little"))
                        sent.append(number)
                    else:
                        numbers = [number, number + 1, number + 2]
                        number += 2
                        channel.send_many([value.to_bytes(8, "little") for value in numbers])
                        sent.extend(numbers)
        channel.send(bytes(8), timeout=60)
        joined([thread])
        assert not wrong and came[:-1] == sorted(set(came[:-1])) and set(sent) <= set(came)
        assert not context._pending and not channel._sends.waiting and context.cache_info().registrations == 0


class Cut(BaseException):
    pass


@contextlib.contextmanager
def cut(at):
    """Raises Cut at the `at`th place of the package where Python would run a signal handler: at the beginning of a function, and
    after a call of C. Not in what the garbage collector ends just then, where an exception is lost: it has to wait. The traceback
    must not keep what was called, as that of a signal handler does not."""
    places = 0

    def look(frame, event, argument):
        nonlocal places
        del argument
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            places += 1
            if places == at:
                sys.setprofile(None)
                raise Cut

    gc.disable()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
        gc.enable()


def test_handing_out_that_is_cut(address):
    with copyrpc.Context() as context, copyrpc.Context() as other:
        listener = context.listen(address)
        endpoint = other._begin_connect(address, None, False)
        completions = copyrpc.CompletionArray(1)
        while not endpoint.connected:
            context.poll(completions)
            other.poll(completions)
        cuts = 0
        for at in range(1, 200):
            calls = [endpoint.start(b"from the peer %d" % index) for index in range(3)]
            other.poll(completions)
            texts = []
            for index in range(3):
                request = None
                try:
                    if index < 2:
                        with cut(at):
                            request = listener.receive(60)
                except Cut:
                    cuts += 1
                if request is None:
                    request = listener.receive(60)
                texts.append(bytes(request.payload).decode())
                request.reply(b"to " + request.payload)
                request.release()
            assert texts == ["from the peer 0", "from the peer 1", "from the peer 2"], at
            with pytest.raises(copyrpc.Timeout):
                listener.receive(0.0001)
            while not all(call.done() for call in calls):
                context.poll(completions)
                try:
                    with cut(at):
                        other.poll(completions)
                except Cut:
                    cuts += 1
                    other.poll(completions)
            assert [call.result() for call in calls] == [b"to from the peer %d" % index for index in range(3)]
            assert not other._pending
        assert cuts > 50


def cut_requests(listener, monkeypatch):
    """Returns a list. While a place is in it, the next request of a peer is cut there, and the place is taken out."""
    real = listener._connect_request
    places = []

    def connect_request(bits):
        if not places:
            return real(bits)
        with cut(places.pop()):
            return real(bits)

    monkeypatch.setattr(listener, "_connect_request", connect_request)
    return places


def test_accepting_that_is_cut(address, monkeypatch):
    with copyrpc.Context() as context, copyrpc.Context() as other:
        listener = context.listen(address)
        places = cut_requests(listener, monkeypatch)
        completions = copyrpc.CompletionArray(1)
        cuts = 0
        for at in range(1, 1000):
            places.append(at)
            endpoint = other._begin_connect(address, None, False)
            call = None
            while call is None or not call.done():
                other.poll(completions)
                if endpoint.connected and call is None:
                    call = endpoint.start(b"who is this?", timeout=5)
                try:
                    context.poll(completions)
                except Cut:
                    cuts += 1
                if listener._queue:
                    with listener.receive(60) as request:
                        request.reply(b"it is me")
            assert call.result() == b"it is me", at
            endpoint.close()
            while listener.endpoints:
                context.poll(completions)
            assert listener.accept_error is None and not context._endpoints
            if cuts < at:
                break
        assert cuts + 1 == at  # the last came to its end


def peer_that_asks(client, context, listener):
    client._begin_connect(listener.address, None, False)
    completions = copyrpc.CompletionArray(1)
    while not listener._connections:
        context.poll(completions)
        client.poll(completions)
    return listener.next_connection()


def test_spreading_that_is_cut(address, monkeypatch):
    """Each peer goes to one listener, and to the one whose turn it is."""
    with copyrpc.Context() as context, copyrpc.Context() as other, copyrpc.Context() as client:
        taker = other.listen(None, auto_accept=False)
        listener = context.listen(address, auto_accept=False, spread=[taker])
        places = cut_requests(listener, monkeypatch)
        completions = copyrpc.CompletionArray(1)
        for cuts in range(200):
            peer_that_asks(client, context, listener).reject()  # its turn
            places.append(cuts + 1)
            client._begin_connect(address, None, False)
            was_cut = False
            while not taker._connections:
                client.poll(completions)
                other.poll(completions)
                try:
                    context.poll(completions)
                except Cut:
                    was_cut = True
            taker.next_connection().reject()
            assert listener.counts()[0] == 2 * (cuts + 1) and taker.counts()[0] == cuts + 1
            assert not listener._connections and listener.spread_error is None
            if not was_cut:
                break
        assert 5 < cuts < 199


def test_handing_over_that_is_cut(address):
    """Either the other listener has the peer, or it still can be handed over."""
    with copyrpc.Context() as context, copyrpc.Context() as other, copyrpc.Context() as client:
        listener = context.listen(address, auto_accept=False)
        taker = other.listen(None, auto_accept=False)
        completions = copyrpc.CompletionArray(1)
        before = after = 0
        for at in range(1, 200):
            request = peer_that_asks(client, context, listener)
            was_cut = False
            try:
                with cut(at):
                    request.hand_over(taker)
            except Cut:
                was_cut = True
            try:
                request.hand_over(taker)
                before += 1
            except copyrpc.InvalidArgument:
                after += 1
            while not taker._connections:
                other.poll(completions)
            taker.next_connection().reject()
            assert taker.counts() == (at, 0), at
            if not was_cut:
                break
        assert before > 5 and after > 1 and at < 199


CALLS = {
    "start": lambda endpoint: endpoint.start(b"x"),
    "call": lambda endpoint: endpoint.call(b"x"),
    "call_view": lambda endpoint: endpoint.call_view(b"x"),
    "call_many": lambda endpoint: endpoint.call_many([b"x", b"y"]),
}


@pytest.mark.parametrize("form", CALLS)
def test_calls_that_are_cut(silent, form):
    """While they begin, and while they wait for an answer that does not come. Nobody has such a call, so it does not stay open."""
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address)
        for at in range(1, 61):
            try:
                with cut(at):
                    call = CALLS[form](endpoint)
            except Cut:
                assert endpoint.info().calls_open == 0, at
                context.poll(copyrpc.CompletionArray(10))
                assert not context._pending and not context._batches, at
            else:
                assert form == "start" and at > 10
                call.cancel()
                break
        else:
            assert form != "start"


NOT_BEFORE = ("SETUP_FINALLY", "SETUP_WITH", "BEFORE_ASYNC_WITH", "YIELD_FROM")


@contextlib.contextmanager
def cut_between(at, counts=lambda: True):
    """As cut(), at the `at`th place once counts() says so, and of instructions, where those are places."""
    places = 0

    def strike():
        nonlocal places
        places += counts()
        if places == at:
            sys.settrace(None)
            sys.setprofile(None)
            raise Cut

    def in_frame(frame, event, argument):
        if event == "opcode" and dis.opname[frame.f_code.co_code[frame.f_lasti]] not in NOT_BEFORE:
            strike()
        return in_frame

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return in_frame

    def profile(frame, event, argument):
        del argument
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            strike()

    gc.disable()
    if RUNS_HANDLERS_ANYWHERE:
        sys.settrace(trace)
    else:
        sys.setprofile(profile)
    try:
        yield
    finally:
        sys.settrace(None)
        sys.setprofile(None)
        gc.enable()


def is_whole(at, step, *arguments):
    """Does the step, cut at the `at`th place. Returns whether it has fewer."""
    with contextlib.suppress(Cut), cut_between(at):
        step(*arguments)
        return True
    return False


def is_as_before(context, endpoint):
    """Nothing is left of a call, and the lock is free."""
    if endpoint.info().calls_open:
        return False
    context.poll(copyrpc.CompletionArray(10))
    return not context._pending and not context._batches and not context._followers and context._leader is None


@pytest.mark.skipif(not RUNS_HANDLERS_ANYWHERE, reason="Python runs signal handlers after calls only: test_calls_that_are_cut has these")
@pytest.mark.parametrize("form", ["call", "call_many"])
def test_calls_that_are_cut_between_instructions(silent, form):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address)
        for at in range(1, 400):
            with pytest.raises(Cut), cut_between(at):
                CALLS[form](endpoint)
            assert is_as_before(context, endpoint), at


@pytest.mark.parametrize("form", ["call", "call_many"])
def test_calls_that_are_cut_twice(silent, form, monkeypatch):
    """The second time when the first exception is on its way out: nothing of what it has to do is left out."""
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address)
        for at in range(1, 1000):
            struck = []

            def wait(*ignored, struck=struck):
                struck.append(True)
                raise Interrupted

            with monkeypatch.context() as patch:
                patch.setattr(context, "_lead", wait)
                try:
                    with cut_between(at, lambda struck=struck: bool(struck)):
                        CALLS[form](endpoint)
                except Cut:
                    was_cut = True
                except Interrupted:
                    was_cut = False
            assert is_as_before(context, endpoint), at
            if not was_cut:
                break
        assert 5 < at < 999


def test_settling_that_is_cut(server):
    """What the library took is taken out of the outbox once: what is put there next stays."""

    async def main():
        with copyrpc.Context() as context:
            await context.aconnect(server.address)
            attachment = context._attachment
            for at in range(1, 100):
                attachment.outbox.update({-1: (), -2: ()})
                attachment.sent = [-1, -2]
                attachment.taken[0] = 2
                whole = is_whole(at, attachment.settle)
                attachment.outbox.update({-3: (), -4: ()})
                attachment.settle()
                assert list(attachment.outbox) == ([-3, -4] if attachment.taken[0] == 0 else None), at
                attachment.outbox.clear()
                if whole:
                    break
            assert at < 99

    asyncio.run(main())


def test_calls_without_room_that_are_cut(server):
    """They are set aside until there is room, and then they are tried again."""

    async def main():
        with copyrpc.Context() as context:
            await context.aconnect(server.address)
            attachment = context._attachment

            for at in range(1, 200):
                attachment.room_seen = context._room
                attachment.full.add(0)
                attachment.outbox[-1] = (0, 0, 0, 0, 0, 0)
                whole = is_whole(at, attachment.hold)
                attachment.turn_once()  # goes on where it was cut
                assert list(attachment.held) == [-1] and not attachment.outbox and attachment.stalled is not None, at
                attachment.room_seen = -1
                whole = is_whole(at, attachment.unstall) and whole
                if attachment.stalled is not None:
                    attachment.unstall()
                assert list(attachment.outbox) == [-1] and not attachment.held and not attachment.full, at
                attachment.outbox.clear()
                if whole:
                    break
            assert at < 199

    asyncio.run(main())


def test_cancels_that_are_cut(server):
    async def main():
        with copyrpc.Context() as context:
            await context.aconnect(server.address)
            attachment = context._attachment
            for at in range(1, 200):
                attachment.outbox[-1] = ()
                context._pending[-1] = None
                whole = is_whole(at, attachment.cancel, 0, -1)
                attachment.cancel(0, -1)
                assert -1 not in attachment.outbox and -1 not in context._pending, at
                if whole:
                    break
            assert at < 199

    asyncio.run(main())


def test_a_batch_that_is_cut_before_it_has_begun(waiting, silent, monkeypatch):
    """It has no ids yet, and must not take those of others for its own: the first ones are small numbers."""
    calls = [waiting.start(b"%d" % index) for index in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "_check", interrupt)
        with pytest.raises(Interrupted):
            waiting.call_many([b"never"] * 8)
    waiting.context.poll(copyrpc.CompletionArray(8))  # sends what has gathered
    for request in silent.wait_for(4):
        request.reply(bytes(request))
    assert [call.result(60) for call in calls] == [b"0", b"1", b"2", b"3"]



def test_commits_that_are_cut(silent):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address)
        for at in range(1, 1000):
            try:
                with endpoint.reserve(8) as room, cut(at):
                    call = room.commit()
            except Cut:
                assert endpoint.info().calls_open == 0, at
                context.poll(copyrpc.CompletionArray(10))
                assert not context._pending and not context._reservations, at
            else:
                assert endpoint.info().calls_open == 1
                break
        assert at > 10
        call.cancel()
        with pytest.raises(copyrpc.Canceled):
            call.result(60)


def test_posting_to_a_channel_that_is_cut(address):
    """What the library has is expected, and nothing else is."""
    with copyrpc.Context(rails=True) as context, copyrpc.Context(rails=True) as other:
        listener = other.listen_channels(address)
        accepted = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept(timeout=60)))
        thread.start()
        channel = context.connect_channel(address)
        joined([thread])
        (peer,) = accepted
        rooms = [bytearray(100_000), bytearray(100_000)]
        payload = bytes(100_000)  # so long that it is registered
        completions = copyrpc.CompletionArray(1)
        receive_cuts = send_cuts = 0
        for at in range(1, 1000):
            try:
                with cut(at):
                    peer.post_receive(rooms)
            except Cut:
                receive_cuts += 1
            receives = peer.info().receives_open
            assert len(other._pending) == receives and receives in (0, 2), at
            if not receives:
                peer.post_receive(rooms)
            try:
                with cut(at):
                    channel.post_send(payload)
            except Cut:
                send_cuts += 1
            sends = channel.info().sends_open
            assert len(context._pending) == sends, at
            for _ in range(2 - sends):
                channel.post_send(payload)
            while context._pending or other._pending:
                context.poll(completions)
                other.poll(completions)
            assert context.cache_info().registrations == other.cache_info().registrations == 0, at
            if receive_cuts < at and send_cuts < at:
                break
        assert min(receive_cuts, send_cuts) > 10  # and the last came to its end


def test_answers_that_are_cut(address):
    """With a slice of the payload in hand, which the exception's traceback keeps."""
    with copyrpc.Context() as context:
        listener = context.listen(address)
        wrong = []

        def client():
            try:
                with copyrpc.connect(address) as endpoint:
                    for index in range(400):
                        with contextlib.suppress(copyrpc.Dropped):
                            assert endpoint.call(b"%d" % index, timeout=60) == b"%d" % index
            except BaseException as error:
                wrong.append(error)
            finally:
                listener.stop()

        def handler(request):
            part = request.payload[:]
            request.reply(part)

        thread = threading.Thread(target=client)
        thread.start()
        cuts = 0
        while thread.is_alive():
            try:
                with cut(cuts % 150 + 1):
                    listener.serve(handler)
            except Cut:
                cuts += 1
        joined([thread])
        assert not wrong and cuts > 100


def test_receives_with_tags_that_are_cut():
    """While they begin, and while they wait for a message that does not come: the memory is taken back."""
    with copyrpc.Context(queues=True) as context:
        tagged = context.tagged_queue(copyrpc.QueueOptions(receives=1, tags=4))
        region = context.register(bytearray(64), "local_write")
        completions = copyrpc.CompletionArray(1)
        for at in range(1, 121):
            with pytest.raises(Cut), cut(at):
                tagged.receive_tag(region, 5)
            while tagged.info().tags_open or context._pending:
                context.poll(completions)
            assert not any(box.waiting for box in tagged._boxes()), at
        assert tagged.synchronize(timeout=60) is True
