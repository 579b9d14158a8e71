# expect: contained
# mode: run
# attack: binary output that looks like frames of a protocol
import os
for w in (b"\x00\x00\x00\x10\x00\x00\x00\x00" + b'{"event": "end"}', b"\xff" * 64, b'{"event": "ready"}\n', bytes(range(256))):
    os.write(1, w); os.write(2, w)
