"""Pipes with deadlines, processes held still, and the trusted process's own life."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from autograder.judge.speed.channel import Channel, Gone, Late
from autograder.judge.speed.processes import TrustedProcess, descendants, held_still
from autograder.judge.speed.workload import NoRoom, calls_in_turn
from autograder.worker.wire import read_message, write_message


def pair():
    request_out, request_in = os.pipe()
    reply_out, reply_in = os.pipe()
    return Channel(request_in, reply_out), request_out, reply_in


def test_a_reply_comes_back():
    channel, request, reply = pair()

    def far_side():
        header, _ = read_message(request)
        write_message(reply, {"ok": True, "seen": header["op"]})

    thread = threading.Thread(target=far_side)
    thread.start()
    assert channel.ask({"op": "peer"}, within_s=5)["seen"] == "peer"
    thread.join()
    channel.close()


def test_silence_is_late():
    channel, _, _ = pair()
    start = time.monotonic()
    with pytest.raises(Late):
        channel.ask({"op": "peer"}, within_s=0.05)
    assert time.monotonic() - start < 10  # a channel's own patience is 45 s


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\x02\x00\x00\x00[]",
        b"\x02\x00\x00\x00{}",
        (14).to_bytes(4, "little") + b'{"blobs": [4]}',
    ],
    ids=["closed", "huge", "list", "no blobs", "data"],
)
def test_what_is_no_message_is_gone(junk):
    channel, _, reply = pair()
    os.write(reply, junk)
    os.close(reply)
    with pytest.raises(Gone):
        channel.ask({"op": "peer"}, within_s=1)


def test_a_closed_request_pipe_is_gone():
    channel, request, _ = pair()
    os.close(request)
    with pytest.raises(Gone):
        channel.ask({"op": "peer"}, within_s=1)


COUNTS = (
    "import os, sys, time\n"
    "if os.fork() == 0: os.setsid()\n"
    "n = 0\n"
    "while True:\n"
    "    n += 1\n"
    "    os.pwrite(int(sys.argv[1]), b'%20d' % n, 64 * (os.getsid(0) == os.getpid()))\n"
    "    time.sleep(0.001)\n"
)


def test_held_processes_stand_still_and_go_on(tmp_path):
    counts = os.open(tmp_path / "counts", os.O_RDWR | os.O_CREAT)
    child = subprocess.Popen(
        [sys.executable, "-c", COUNTS, str(counts)], pass_fds=(counts,)
    )

    def read():
        return os.pread(counts, 20, 0), os.pread(counts, 20, 64)

    try:
        deadline = time.monotonic() + 10
        while not all(read()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(descendants(os.getpid())) >= 2
        with held_still(os.getpid()):
            time.sleep(0.02)
            before = read()
            time.sleep(0.1)
            # The one that has left its parent's session stands still too.
            assert read() == before
        time.sleep(0.2)
        after = read()
        assert after[0] != before[0] and after[1] != before[1]
    finally:
        for pid in descendants(os.getpid()):
            os.kill(pid, 9)
        child.wait()
        os.close(counts)


def test_the_trusted_process_answers_and_ends():
    trusted = TrustedProcess()
    try:
        answer = trusted.channel.ask({"op": "scalars", "turn": 0}, within_s=60)
        # Nothing was set up: it says so, and lives on.
        assert answer["ok"] is False and answer["kind"] == "bug"
        again = trusted.channel.ask({"op": "nonsense"}, within_s=10)
        assert "nonsense" in again["message"]
    finally:
        trusted.close()


def test_calls_of_a_turn_pass_the_caches_and_last():
    facts = {"returned_bytes": 0, "cache_bytes": 60 * 2**20, "target_s": 0.02}
    # 768 MB in 0.18 ms: the turn's length decides.
    assert (
        calls_in_turn(set_bytes=768 * 2**20, room=2**37, each_s=18e-5, **facts) == 112
    )
    # Memory for fewer.
    assert (
        calls_in_turn(set_bytes=768 * 2**20, room=10 * 2**30, each_s=18e-5, **facts)
        == 13
    )
    # 1 MB in 1 ms: four caches decide.
    assert calls_in_turn(set_bytes=2**20, room=2**34, each_s=1e-3, **facts) == 241


def test_too_little_memory_is_said():
    with pytest.raises(NoRoom, match=r"needs 3.2 GB of GPU memory, and 1.0 GB"):
        calls_in_turn(
            set_bytes=2**29,
            returned_bytes=2**29,
            cache_bytes=2**20,
            room=10**9,
            each_s=1,
            target_s=1,
        )
