"""The library's log in Python's logging."""
import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from conftest import HOST, _ports
from test_interrupts import Interrupted, Storm

import copyrpc
from copyrpc import _logging

FOREVER = 60  # seconds, which end a hang


class Keeper(logging.Handler):
    """Keeps records. `during` is called before that, for each."""

    def __init__(self, during=None):
        super().__init__()
        self.during = during
        self.records = []
        self.came = threading.Condition()

    def handle(self, record):  # not emit: whoever holds a handler's lock for long holds up all that log to it
        if self.during is not None:
            self.during(record)
        with self.came:
            self.records.append(record)
            self.came.notify_all()
        return True

    def wait_for(self, count):
        with self.came:
            assert self.came.wait_for(lambda: len(self.records) >= count, FOREVER), f"{len(self.records)} of {count} records came"
            return list(self.records)


@pytest.fixture
def told(request):
    """A logger of all levels, with a Keeper."""
    logger = logging.getLogger(request.node.name)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Keeper())
    return logger


@pytest.fixture
def nobody():
    """An address that no other test's is."""
    return f"{HOST}:{next(_ports)}"


def keeper(logger):
    return logger.handlers[0]


def fail(context, address, count=1):
    """For each, the context logs an entry of level info: nobody listens."""
    for _ in range(count):
        with pytest.raises(copyrpc.Refused):
            context.connect(address)


def test_a_record_has_what_the_entry_has(told, address):
    before = time.monotonic_ns()
    with copyrpc.Context(logger=told) as context:
        fail(context, address)
        (record,) = keeper(told).wait_for(1)
        assert record.levelno == logging.INFO and "not connected" in record.getMessage()
        assert record.copyrpc_device == context.info().device
        assert before <= record.copyrpc_time_ns <= time.monotonic_ns() and record.copyrpc_lost == 0
        assert record.threadName == f"copyrpc log {record.copyrpc_device}"


def test_true_means_the_logger_of_the_package(address):
    logger = logging.getLogger("copyrpc")
    handler = Keeper()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        with copyrpc.Context(logger=True) as context:
            fail(context, address)
        assert len(handler.records) == 1
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_all_come_in_order(told, address):
    with copyrpc.Context(logger=told) as context:
        fail(context, address, 600)  # more than the library keeps
    records = keeper(told).records
    assert len(records) == 600
    assert [record.copyrpc_time_ns for record in records] == sorted({record.copyrpc_time_ns for record in records})


def test_what_a_listener_refuses_comes_before_who_waits_there_sleeps(told, address):
    with copyrpc.Context(logger=told) as context, context.listen(address) as listener:
        thread = threading.Thread(target=listener.serve, args=(bytes,))
        thread.start()
        with copyrpc.Context(rails=True) as other, pytest.raises(copyrpc.CopyrpcError):
            other.connect_channel(address)  # a channel, to a listener of endpoints
        (record,) = keeper(told).wait_for(1)
        assert record.levelno == logging.WARNING and "refused a connection" in record.getMessage()
        listener.stop()
        thread.join(FOREVER)
        assert not thread.is_alive()


def test_the_logger_decides(told, address):
    told.setLevel(logging.WARNING)
    with copyrpc.Context(logger=told) as context:
        fail(context, address)
        assert not context.log()  # it was taken, since the logger takes others
    assert not keeper(told).records
    told.setLevel(logging.INFO)
    with copyrpc.Context(logger=told) as context:
        fail(context, address)
    assert len(keeper(told).records) == 1


def test_log_level_may_keep_less(told, address):
    with copyrpc.Context(logger=told, log_level="warning") as context:
        fail(context, address)
    assert not keeper(told).records


@pytest.mark.parametrize("how", ["level", "disabled", "manager"])
def test_nothing_is_taken_for_a_logger_that_wants_nothing(told, address, how):
    if how == "level":
        told.setLevel(logging.CRITICAL)
    elif how == "disabled":
        told.disabled = True
    else:
        logging.disable(logging.CRITICAL)
    try:
        with copyrpc.Context(logger=told) as context:
            fail(context, address, 3)
            assert len(context.log()) == 3 and not keeper(told).records
    finally:
        logging.disable(logging.NOTSET)


def test_close_tells_what_is_left_and_how_many_were_lost(told, address):
    told.setLevel(logging.CRITICAL)
    with copyrpc.Context(logger=told) as context:
        fail(context, address, 300)
        told.setLevel(logging.DEBUG)
    records = keeper(told).records
    assert len(records) == 257
    assert records[0].levelno == logging.WARNING and records[0].copyrpc_lost == 44 and records[0].getMessage().startswith("44 log entries")
    assert all(record.levelno == logging.INFO and record.copyrpc_lost == 0 for record in records[1:])


def test_a_slow_handler_holds_up_nobody(told, server, nobody, monkeypatch):
    monkeypatch.setattr(_logging, "ENTRIES_MAX", 4)  # so that some wait in the library's log
    entered, leave = threading.Event(), threading.Event()
    keeper(told).during = lambda record: (entered.set(), leave.wait(FOREVER))
    with copyrpc.Context(logger=told) as context:
        endpoint = context.connect(server.address)
        fail(context, nobody)
        assert entered.wait(FOREVER)
        for number in range(40):
            fail(context, nobody)
            assert endpoint.call(b"%d" % number, timeout=FOREVER) == b"%d" % number
        leave.set()
        assert all(record.levelno == logging.INFO for record in keeper(told).wait_for(41))


def test_close_waits_for_the_handler(told, address):
    context = copyrpc.Context(logger=told)

    def during(record):
        while not context.closed:
            time.sleep(0.001)
        time.sleep(0.1)  # what close() has to wait for

    keeper(told).during = during
    fail(context, address)
    context.close()
    assert len(keeper(told).records) == 1


def test_close_does_not_wait_for_ever(told, address, monkeypatch):
    monkeypatch.setattr(_logging, "CLOSE_SECONDS", 0.05)
    entered, leave = threading.Event(), threading.Event()
    keeper(told).during = lambda record: (entered.set(), leave.wait(FOREVER))
    with copyrpc.Context(logger=told) as context:
        fail(context, address)
        assert entered.wait(FOREVER)
    assert not keeper(told).records
    leave.set()
    keeper(told).wait_for(1)


class Raises(logging.Handler):
    """Raises at each record, or says that it has."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def emit(self, record):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("of the handler's own"), SystemExit("of the handler's own")])
@pytest.mark.parametrize("says", [True, False])
def test_a_handler_that_raises_ends_nothing(told, server, nobody, monkeypatch, capfd, error, says):
    told.addHandler(Raises(error))  # behind the one that keeps
    monkeypatch.setattr(logging, "raiseExceptions", says)
    with copyrpc.Context(logger=told) as context:
        endpoint = context.connect(server.address)
        fail(context, nobody, 3)
        assert endpoint.call(b"goes on") == b"goes on"
    assert len(keeper(told).records) == 3
    said = capfd.readouterr().err
    assert said.count("of the handler's own") == (3 if says else 0)
    assert ("at an entry of copyrpc's log" in said) == says


def test_a_logger_whose_level_is_no_number_ends_nothing(told, address, capfd):
    told.level = "INFO"  # as setLevel would not have it
    with copyrpc.Context(logger=told) as context:
        fail(context, address)
    assert "TypeError" in capfd.readouterr().err


def test_a_handler_may_use_the_context(told, server, nobody):
    answers = []
    with copyrpc.Context(logger=told) as context:
        endpoint = context.connect(server.address)

        def during(record):
            answers.append(endpoint.call(record.getMessage().encode()))
            context.stats()

        keeper(told).during = during
        fail(context, nobody)
        (record,) = keeper(told).wait_for(1)
        assert answers == [record.getMessage().encode()]


def test_a_handler_may_close_the_context(told, address):
    context = copyrpc.Context(logger=told)
    keeper(told).during = lambda record: context.close()
    with pytest.raises((copyrpc.Refused, copyrpc.Closed)):  # whichever comes first
        context.connect(address)
    keeper(told).wait_for(1)
    assert context.closed
    context.close()


def test_with_asyncio_the_loop_tells_nothing_itself(told, address):
    threads = []
    keeper(told).during = lambda record: threads.append(threading.get_ident())

    async def main():
        async with copyrpc.Context(logger=told) as context:
            for _ in range(3):
                with pytest.raises(copyrpc.Refused):
                    await context.aconnect(address)

    asyncio.run(main())
    assert len(keeper(told).records) == 3
    assert len(set(threads)) == 1 and threads[0] != threading.get_ident()


def test_polls_of_arrays_take_entries_too(told, address):
    with copyrpc.Context(logger=told) as context:
        endpoint = context._begin_connect(address, None, True)
        done = copyrpc.CompletionArray(4)
        while endpoint._error is None:
            context.poll(done)
        keeper(told).wait_for(1)


@pytest.mark.parametrize("wrong", ["copyrpc", 1, logging.StreamHandler(), logging.LoggerAdapter(logging.getLogger("x"), {})])
def test_wrong_types(wrong):
    with pytest.raises(TypeError, match=rf'getLogger\("copyrpc"\), or a logging.Logger, not {type(wrong).__name__}'):
        copyrpc.Context(logger=wrong)


@pytest.mark.parametrize("none", [None, False])
def test_without_a_logger_there_is_no_thread(none):
    with copyrpc.Context(logger=none) as context:
        assert context._log_feed is None and not [thread for thread in threading.enumerate() if thread.name.startswith("copyrpc log")]


def test_a_context_that_is_lost_ends_its_thread_and_waits_for_nobody(told, address, monkeypatch):
    monkeypatch.setattr(_logging, "CLOSE_SECONDS", 2 * FOREVER)
    leave = threading.Event()
    keeper(told).during = lambda record: leave.wait(FOREVER)
    context = copyrpc.Context(logger=told)
    thread = context._log_feed._thread
    fail(context, address)
    with pytest.warns(ResourceWarning):
        del context
        gc.collect()
    assert thread.is_alive() and not keeper(told).records
    leave.set()
    thread.join(FOREVER)
    assert not thread.is_alive()
    assert len(keeper(told).records) == 1


PROGRAM = """
import logging, sys
logging.basicConfig(filename=sys.argv[2], filemode="w", level=logging.DEBUG)
import copyrpc
context = copyrpc.Context(logger=True)
try:
    context.connect(sys.argv[1])
except copyrpc.Refused:
    pass
"""


def test_a_program_that_ends_without_closing_has_all_told(address, tmp_path):
    file = tmp_path / "log"
    subprocess.run([sys.executable, "-c", PROGRAM, address, file], check=True, timeout=FOREVER)
    assert file.read_text().startswith("INFO:copyrpc:") and "not connected" in file.read_text()


def test_in_a_child_of_fork_nothing_is_told(told, address):
    with copyrpc.Context(logger=told) as context:
        child = os.fork()
        if child == 0:
            context.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        fail(context, address)
    assert len(keeper(told).records) == 1


def test_a_storm_of_exceptions_loses_and_repeats_none(told, address):
    failed = 0
    with copyrpc.Context(logger=told) as context:
        with Storm() as storm:
            while not storm.over():
                try:
                    context.connect(address)
                except copyrpc.Refused:
                    failed += 1
                except Interrupted:
                    pass
    times = [record.copyrpc_time_ns for record in keeper(told).records]
    assert failed <= len(times) and times == sorted(set(times))
    assert all(record.copyrpc_lost == 0 for record in keeper(told).records)
