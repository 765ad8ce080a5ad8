"""Detector frames from one process to another, as NumPy arrays over the memory that is sent.

farhaul keygen                                              # once: makes a key for this user
frames.py receive ADDRESS:PORT AUTHORIZED_KEYS              # one process; prints its address and fingerprint
frames.py send HOST:PORT FINGERPRINT 500                    # another one, perhaps far away
"""

import sys

import numpy

import farhaul

SHAPE, KIND = (512, 640), numpy.dtype("<u2")
SIZE = SHAPE[0] * SHAPE[1] * KIND.itemsize


def send(target: str, fingerprint: str, count: int) -> None:
    with farhaul.connect_to_send(f"fh://{target}", "frames", connection={"fingerprint": fingerprint}) as sender:
        for number in range(count):
            block = sender.claim()
            # The frame is made where it is sealed from, so nothing copies it. The array must be gone before the block is put.
            frame = numpy.frombuffer(block.data, KIND, count=SHAPE[0] * SHAPE[1]).reshape(SHAPE)
            frame[:] = number
            frame[0, 0] = number + 1
            del frame
            sender.put(block, SIZE, number.to_bytes(4, "little"))
    print(f"sent {count} frames")


def receive(address: str, authorized_keys: str) -> None:
    with farhaul.Listener(address, authorized_keys=authorized_keys, names=["frames"]) as listener:
        print("listening", listener.addresses[0], listener.fingerprint, flush=True)
        stream = listener.accept()
        assert isinstance(stream, farhaul.Receiver)
        count = total = 0
        with stream:
            for block in stream:
                frame = numpy.frombuffer(block.data, KIND).reshape(SHAPE)
                number = int.from_bytes(block.metadata, "little")
                assert frame[0, 0] == number + 1 and frame[-1, -1] == number
                count, total = count + 1, total + int(frame.sum(dtype="u8"))
                del frame
        print(f"received {count} frames, sum of all pixels {total}")


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        receive(sys.argv[2], sys.argv[3])
