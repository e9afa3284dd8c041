"""A real S3 server on loopback (moto), for the tests of the blob worker.

Reads commands from stdin and answers each on stdout: first `KEYS COUNT`, followed by the names of the objects, one per line; then `LIST`,
answered with the number of remaining objects, `VERSIONS`, answered with that of all their versions, and `VERSIONING Enabled` or
`VERSIONING Suspended`. Ends at the end of stdin.
"""

import logging
import sys

from moto.s3.models import FakeDeleteMarker, s3_backends
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
        elif command == "VERSIONS":
            kept = [version for key in backend.buckets[BUCKET].keys.lists() for version in key[1]]
            say(sum(not isinstance(version, FakeDeleteMarker) for version in kept))
        elif command == "VERSIONING":
            backend.put_bucket_versioning(BUCKET, count)
            say("done")
    server.stop()


main()
