"""send_file.py: carries a file to another machine, striped over both rails.

    send_file.py receive FILE [ADDRESS]      e.g. send_file.py receive copy 10.99.0.1:7472
    send_file.py send FILE ADDRESS

Pieces of PIECE bytes go round in DEPTH rooms of one region, which is registered once: while some are under way the others are read
or written. A piece that is shorter than a room, or empty, is the last."""
import sys

import copyrpc

PIECE = 1 << 20
DEPTH = 8


def rooms(context, *access):
    region = context.register(bytearray(DEPTH * PIECE), *access)
    return [region.memory[index * PIECE : (index + 1) * PIECE] for index in range(DEPTH)]


def receive(path, address):
    with copyrpc.Context(rails=True) as context, context.listen_channels(address) as listener, open(path, "wb") as file:
        print(f"listening on {listener.address}", flush=True)
        with listener.accept() as channel:
            ring = [(room, channel.post_receive(room)) for room in rooms(context, "local_write", "remote_write")]
            size = PIECE
            while size == PIECE:
                room, piece = ring.pop(0)
                size = piece.wait()
                file.write(room[:size])
                if size == PIECE:
                    ring.append((room, channel.post_receive(room)))
            channel.send(b"done")  # the sender must not leave before
            print(f"{file.tell()} bytes received")


def send(path, address):
    with copyrpc.Context(rails=True) as context, open(path, "rb") as file:
        with context.connect_channel(address) as channel:
            done = channel.post_receive(bytearray(4))
            ring = [(room, None) for room in rooms(context)]
            size = PIECE
            while size == PIECE:
                room, piece = ring.pop(0)
                if piece is not None:
                    piece.wait()
                size = file.readinto(room)
                ring.append((room, channel.post_send(room[:size])))
            done.wait()
            sent = channel.stats().rail_bytes_sent
            print(f"{file.tell()} bytes sent, {sent[0]} over rail 0 and {sent[1]} over rail 1")


def main():
    words = sys.argv[1:]
    if len(words) == 3 and words[0] == "send":
        send(*words[1:])
    elif 2 <= len(words) <= 3 and words[0] == "receive":
        receive(words[1], words[2] if len(words) == 3 else "*:7472")
    else:
        sys.exit("usage: send_file.py receive FILE [ADDRESS] | send FILE ADDRESS")


if __name__ == "__main__":
    try:
        main()
    except (copyrpc.CopyrpcError, OSError) as error:
        sys.exit(f"send_file: {error}")
