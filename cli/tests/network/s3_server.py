"""A real S3 server on loopback (moto), for the tests of the blob worker.

Reads commands from stdin and answers each on stdout: first `KEYS COUNT`, followed by the names of the objects, one per line; then `LIST`,
answered with the number of remaining objects. Ends at the end of stdin.
"""

import logging
import sys

from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

BUCKET = "blobs"


def main() -> None:
    logging.disable(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    backend = s3_backends["123456789012"]["aws"]
    backend.create_bucket(BUCKET, "us-east-1")
    say = lambda text: print(text, flush=True)
    host, port = server.get_host_and_port()
    say(f"{host}:{port}")
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        if command == "KEYS":
            for _ in range(int(count)):
                backend.put_object(BUCKET, sys.stdin.readline().strip(), b"a blob")
            say("done")
        elif command == "LIST":
            say(len(backend.buckets[BUCKET].keys))
    server.stop()


main()
