"""Stand-in for Google Cloud Storage: one store, behind its JSON interface and behind fsspec.

TensorStore, which writes the arrays of a checkpoint, speaks with a server of this process over HTTP
as with the real service; etils, which writes everything else, reaches the same objects through
fsspec. As in a bucket there are no folders, only names, and no renaming but copying.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import sys
import threading
import types
import urllib.parse
from collections.abc import Iterator

import fsspec
from fsspec.implementations import memory


class Files(memory.MemoryFileSystem):
    """Objects by name, as fsspec shows them."""

    protocol = ("gcs", "gs")
    store: dict = {}
    pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(re.sub("^(gs|gcs)://", "memory://", str(path)))


class Handler(http.server.BaseHTTPRequestHandler):
    """The part of the JSON interface that TensorStore uses."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        bucket, name, query = self._asked()
        if name is None:
            found = sorted(n for n in names(bucket) if n.startswith(query.get("prefix", "")))
            found = [n for n in found if query.get("startOffset", "") <= n]
            found = [n for n in found if n < query.get("endOffset", "\U0010ffff")]
            items = [{"name": n, "generation": "1", "size": str(size(bucket, n))} for n in found]
            return self._answer(200, json.dumps({"items": items}).encode())
        if name not in names(bucket):
            return self._answer(404)
        content = Files().cat_file(f"/{bucket}/{name}")
        asked = re.match(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return self._answer(200, content)
        first = int(asked[1]) if asked[1] else len(content) - int(asked[2])
        last = min(int(asked[2]) if asked[1] and asked[2] else len(content) - 1, len(content) - 1)
        span = f"bytes {first}-{last}/{len(content)}"
        return self._answer(206, content[first : last + 1], {"Content-Range": span})

    def do_POST(self):
        bucket, _, query = self._asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if query.get("ifGenerationMatch") == "0" and query["name"] in names(bucket):
            return self._answer(412)
        Files().pipe_file(f"/{bucket}/{query['name']}", body)
        about = {"name": query["name"], "generation": "1", "size": str(len(body))}
        return self._answer(200, json.dumps(about).encode())

    def do_DELETE(self):
        bucket, name, _ = self._asked()
        if name not in names(bucket):
            return self._answer(404)
        Files().rm_file(f"/{bucket}/{name}")
        return self._answer(204)

    def _asked(self):
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        found = re.fullmatch(r"(?:/upload)?/storage/v1/b/([^/]+)/o(?:/(.*))?", url.path)
        return found[1], found[2] and urllib.parse.unquote(found[2]), query

    def _answer(self, code, body=b"", headers=None):
        self.send_response(code)
        for name, value in {"Content-Length": len(body), "x-goog-generation": 1}.items():
            self.send_header(name, str(value))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Client:
    """What Orbax asks of google.cloud.storage: whether a bucket has real folders."""

    def get_bucket(self, name: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(name=name, hierarchical_namespace_enabled=False)


def names(bucket: str) -> list[str]:
    """List the objects of a bucket."""
    start = f"/{bucket}/"
    return [name.removeprefix(start) for name in Files.store if name.startswith(start)]


def size(bucket: str, name: str) -> int:
    """Give the bytes of an object."""
    return Files().info(f"/{bucket}/{name}")["size"]


@contextlib.contextmanager
def serving() -> Iterator[None]:
    """Answer for gs:// in this process, which must not have spoken with the real service."""
    for name in Files.protocol:
        fsspec.register_implementation(name, Files, clobber=True)
    cloud, storage = types.ModuleType("google.cloud"), types.ModuleType("google.cloud.storage")
    cloud.storage, storage.Client = storage, Client
    sys.modules.update({"google.cloud": cloud, "google.cloud.storage": storage})
    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["TENSORSTORE_GCS_HTTP_URL"] = f"http://localhost:{server.server_port}"
    os.environ["GOOGLE_AUTH_TOKEN_FOR_TESTING"] = "none"
    yield
    server.shutdown()
