"""The programs of examples/python and bench/python, as a user runs them, with their counterparts in C."""
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

SOURCE = os.environ["TEST_SOURCE"]
BUILD = os.environ["TEST_BUILD"]


def program(language, name):
    perf = name.startswith("perf_")
    if language == "python":
        return [sys.executable, os.path.join(SOURCE, "bench" if perf else "examples", "python", name + ".py")]
    return [os.path.join(BUILD, "tools/copyrpc-perf" if perf else f"examples/{name}")]


@contextmanager
def server(command, address):
    process = subprocess.Popen([*command, address], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == f"listening on {address}\n"
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
        process.stdout.close()
    assert status == 0


def run(command, *arguments, seconds=120):
    return subprocess.run([*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds)


@pytest.mark.parametrize("client", ["c", "python"])
@pytest.mark.parametrize("serving", ["c", "python"])
def test_echo(address, serving, client):
    with server(program(serving, "echo_server"), address):
        for calls, size in ((2000, 100), (200, 0), (100, 65536)):
            done = run(program(client, "echo_client"), address, calls, size)
            assert (done.returncode, done.stdout) == (0, f"{calls} calls of {size} bytes answered\n"), done.stderr


def test_echo_says_that_nobody_listens(address):
    done = run(program("python", "echo_client"), address)
    assert done.returncode == 1 and done.stderr.startswith("echo_client: ") and "Traceback" not in done.stderr


def test_echo_says_how_it_is_used():
    for arguments in ((), ("a", "b"), ("a", "1", "-1"), ("a", "1", "2", "3")):
        done = run(program("python", "echo_client"), *arguments)
        assert done.returncode == 1 and "usage" in done.stderr and "Traceback" not in done.stderr


def test_hash_table(tmp_path):
    test = os.path.join(SOURCE, "examples/tests/hash_table_test.sh")
    client = tmp_path / "client"
    client.write_text('#!/bin/sh\nexec "{}" "{}" "$@"\n'.format(*program("python", "hash_table_client")))
    client.chmod(0o755)
    # More than a hundred programs, one after the other, each with a limit of its own.
    done = run([test, *program("c", "hash_table_server"), *program("c", "hash_table_client"), client], seconds=900)
    assert "\nnot ok" not in done.stdout and done.stdout.splitlines()[-1].startswith("1.."), done.stdout


@pytest.mark.parametrize("sizes", [("-s", "32"), ("-s", "64", "-r", "5000"), ("-s", "4096")], ids=" ".join)
@pytest.mark.parametrize("form", ["arrays", "list", "asyncio", "simple"])
def test_perf_client(address, form, sizes):
    with server([*program("c", "perf_server"), "server"], address):
        done = run(program("python", "perf_client"), address, "-n", "2000", "-q", "64", "--form", form, "--json", *sizes)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["calls"] >= 2000 and result["wrong"] == 0 and result["calls_per_second"] > 0


def test_perf_client_notices_wrong_answers(address):
    with server([*program("c", "echo_server")], address):
        done = run(program("python", "perf_client"), address, "-n", "100", "-r", "50", "--form", "list", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["wrong"] > 0


@pytest.mark.parametrize("how", [[], ["--handler"]], ids=["arrays", "handler"])
def test_perf_server(address, how):
    with server([*program("python", "perf_server"), *how], address):
        for sizes in (["-s", "32"], ["-s", "64", "-r", "5000"]):
            done = run([*program("c", "perf_client"), "client"], address, "-n", "2000", "-q", "64", "-e", "3", "--json", *sizes)
            assert done.returncode == 0, done.stderr
            result = json.loads(done.stdout)
            assert result["lost"] == result["wrong"] == 0 and result["calls"] == 2000


@pytest.mark.parametrize("size", [0, 1000, 1 << 20, (5 << 20) + 17, 20 << 20])
def test_send_file(address, tmp_path, size):
    (tmp_path / "original").write_bytes(os.urandom(size))
    command = program("python", "send_file")
    receiver = subprocess.Popen([*command, "receive", str(tmp_path / "copy"), address], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout.readline() == f"listening on {address}\n"
    done = run(command, "send", tmp_path / "original", address)
    assert done.returncode == 0 and done.stdout.startswith(f"{size} bytes sent, "), done.stderr
    assert receiver.communicate(timeout=60)[0] == f"{size} bytes received\n" and receiver.returncode == 0
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "original").read_bytes()


def test_send_file_says_what_is_wrong(address, tmp_path):
    for arguments, says in (([], "usage"), (["send", "/no/such/file", address], "No such file"), (["send", __file__, address], "send_file: ")):
        done = run(program("python", "send_file"), *arguments)
        assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr


def test_tensor_mover(address, tmp_path):
    numpy = pytest.importorskip("numpy")
    mover = program("python", "tensor_mover")
    with server([*mover, "serve", "--tensors", "2", "--rows", "700", "--columns", "96"], address):
        done = run([*mover, "list"], address)
        assert done.returncode == 0 and done.stdout.splitlines()[3] == "layer1.values: 700 x 96 of <u2, 700 rows of 192 bytes"
        done = run([*mover, "read"], address, "--rows", "2000", "--batch", "512")
        assert done.returncode == 0 and done.stdout.startswith("2000 rows of 4 tensors, 0.4 MB in "), done.stderr
        assert done.stdout.endswith("all of them are right\n") and "2000 of 2000 rows, " in done.stderr and "MB/s" in done.stderr
        for rows, block in ((1, 1), (3, 1000), (10_000, 1)):  # all there are; not more blocks than there may be grants
            done = run([*mover, "read"], address, "--rows", rows, "--block", block, "--quiet", "--seed", "7")
            assert done.returncode == 0 and done.stdout.startswith(f"{min(rows, 2800)} rows of ") and not done.stderr, done.stderr
        done = run([*mover, "read"], address, "--tensor", "layer0.keys", "--tensor", "none")
        assert done.returncode == 1 and "the server has no tensor 'none'" in done.stderr and "Traceback" not in done.stderr
    arrays = {"weights": numpy.arange(3000.0).reshape(100, 30), "bias": numpy.ones(17, "f4"), "deep": numpy.ones((5, 4, 3), "i1"), "number": numpy.int64(7)}
    numpy.savez(tmp_path / "checkpoint.npz", **arrays)
    with server([*mover, "serve", "--file", str(tmp_path / "checkpoint.npz")], address):
        done = run([*mover, "read"], address, "--rows", "1000", "--quiet")
        assert done.returncode == 0 and done.stdout.startswith("107 rows of 4 tensors, "), done.stderr


def test_tensor_mover_notices_wrong_data(address):
    pytest.importorskip("numpy")
    mover = program("python", "tensor_mover")
    with server([*mover, "serve", "--tensors", "2", "--rows", "50", "--damage", "layer1.keys"], address):
        done = run([*mover, "read"], address, "--rows", "200", "--quiet")
        assert done.returncode == 1 and done.stderr == "tensor_mover: 1 of 200 rows are not what the server says: row 0 of layer1.keys\n"
        done = run([*mover, "read"], address, "--rows", "50", "--tensor", "layer0.keys", "--quiet")
        assert done.returncode == 0, done.stderr


def test_tensor_mover_says_what_is_wrong(address, tmp_path):
    pytest.importorskip("numpy")
    mover = program("python", "tensor_mover")
    (tmp_path / "bad.npz").write_bytes(b"this is none")
    for arguments, status, says in (([], 2, "usage"), (["read"], 2, "usage"), (["read", address, "--rows", "0"], 2, "no number above 0"),
                                    (["read", address], 1, "tensor_mover: "), (["serve", address, "--file", "/no/such"], 1, "No such file"),
                                    (["serve", address, "--file", tmp_path / "bad.npz"], 1, "tensor_mover: ")):
        done = run(mover, *arguments)
        assert done.returncode == status and says in done.stderr and "Traceback" not in done.stderr
    with server(program("python", "echo_server"), address):  # which knows no lanes
        done = run(mover, "read", address)
        assert done.returncode == 1 and done.stderr == "tensor_mover: the server gives no lane\n"
