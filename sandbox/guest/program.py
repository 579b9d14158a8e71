"""What a forked child does in the modes `run` and `call`.

`run` executes a program as `__main__`; nothing but its stdio is open. `call` loads a program and
calls one function on many inputs; each answer is one line of JSON on the answer descriptor. Names
in this file avoid the words that a program hunting for answers would look for.
"""

import atexit
import json
import linecache
import os
import sys
import threading
import traceback
import types

REQUESTS, REPLIES = 3, 4
FILE = "program.py"
MEMORY_FAILED = 86  # exit code that the host reads
WRITE, EXIT, READ = os.write, os._exit, os.read  # as they were before the program could change them
ISINSTANCE, SETTRACE, TYPE_ERROR = isinstance, sys.settrace, TypeError
READ_BYTES = 1 << 16  # more makes malloc map and unmap memory for each read
DETAIL_CHARACTERS = 2000


def refuse(value):
    """Refuse a value that JSON does not have."""
    raise TYPE_ERROR(f"{type(value).__name__} is not JSON")


CHUNKS = json.encoder.c_make_encoder(  # C code: a patched json module does not reach it
    None, refuse, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
)


def encode(value):
    """Write strict JSON: no NaN, no objects."""
    return "".join(CHUNKS(value, 0))


class Lines:
    """Lines of JSON from the request descriptor."""

    def __init__(self):
        self.buffer = b""

    def next(self):
        """Read one line and decode it; None at the end of the stream."""
        parts = [self.buffer]
        while b"\n" not in parts[-1]:
            chunk = READ(REQUESTS, READ_BYTES)
            if not chunk:
                return None
            parts.append(chunk)
        line, _, self.buffer = b"".join(parts).partition(b"\n")
        return json.loads(line)


def reply(message):
    """Write one line on the reply descriptor."""
    raw = encode(message).encode("ascii") + b"\n"
    while raw:
        raw = raw[WRITE(REPLIES, raw) :]


def run_main():
    """Execute a program as `__main__` and leave as an interpreter leaves."""
    order = Lines().next()
    os.closerange(REQUESTS, REPLIES + 1)
    code = 0
    try:
        module = new_module("__main__", order["source"])
        exec(compile(order["source"], FILE, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as leaving:
        code = exit_code(leaving)
    except BaseException as error:
        code = MEMORY_FAILED if ISINSTANCE(error, MemoryError) else 1
        show(error)
    code = finish() or code
    EXIT(code)


def finish():
    """Join threads, run exit functions and flush, as the interpreter does at its end."""
    code = 0
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
    except SystemExit:
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # closed or replaced by the program
            code = 120
    return code


def exit_code(leaving):
    """Give the exit code of a SystemExit, as Python would."""
    code = leaving.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def show(error):
    """Print the traceback from the program's first frame on."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != FILE:
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace, limit=20)
    except BaseException:
        sys.stderr.write(f"{type(error).__name__}\n")


def call_main():
    """Load a program and call its function on each input, one line of JSON a call."""
    lines = Lines()
    order = lines.next()
    try:
        module = new_module("program", order["source"])
        exec(compile(order["source"], FILE, "exec", dont_inherit=True), module.__dict__)
        function = getattr(module, order["function"])
    except SystemExit:
        EXIT(0)
    except BaseException as error:
        reply({"x": describe(error), "memory": ISINSTANCE(error, MemoryError)})
        EXIT(0)
    for item in order["inputs"]:
        try:
            value = function(item)
            SETTRACE(None)
            reply({"r": value})
        except SystemExit:
            EXIT(0)
        except BaseException as error:
            reply({"e": describe(error), "memory": ISINSTANCE(error, MemoryError)})
        flush()
    EXIT(0)


def flush():
    """Flush what the program printed."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # closed or replaced by the program: its output is its own loss
        pass


def new_module(name, source):
    """Make an empty module that is importable by its name and whose source can be inspected."""
    module = types.ModuleType(name)
    module.__file__ = FILE
    sys.modules[name] = module
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    return module


def describe(error):
    """Name an exception in one line, whatever its `__str__` does."""
    try:
        text = str.__str__(str(error))
    except BaseException:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}"[:DETAIL_CHARACTERS]
