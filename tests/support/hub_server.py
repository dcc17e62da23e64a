"""A Hugging Face hub on this machine, as far as conversions need one, for the real huggingface_hub to talk to."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest


class Hub:
    """Repositories by name, each with its files at every commit, the last one on top; and what was asked for."""

    def __init__(self) -> None:
        self.repos: dict[str, list[dict[str, bytes]]] = {}
        self.created: list[dict[str, Any]] = []
        self.messages: list[str] = []
        self.downloads: list[str] = []
        self.tokens: list[str | None] = []  # of those who created and committed
        self.refuses: int | None = None  # status of every answer

    def files(self, repo: str) -> dict[str, bytes]:
        return self.repos[repo][-1]

    def find(self, repo: str, revision: str) -> dict[str, bytes] | None:
        commits = {_sha(repo, number): files for number, files in enumerate(self.repos[repo])}
        return self.files(repo) if revision == "main" else commits.get(revision)

    def commit(self, repo: str, lines: list[dict[str, Any]]) -> str:
        files = dict(self.files(repo))
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            else:
                raise AssertionError(line["key"])
        self.repos[repo].append(files)
        return _sha(repo, len(self.repos[repo]) - 1)


@contextmanager
def running_hub(monkeypatch: pytest.MonkeyPatch, cache: Any):
    """Give a hub that huggingface_hub takes for the real one, with an empty cache."""
    from huggingface_hub import close_session, constants

    hub = Hub()
    handler = type("BoundHandler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}", raising=False
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    close_session()  # an open one may know of a proxy
    try:
        yield hub
    finally:
        close_session()
        server.shutdown()
        server.server_close()


def _sha(repo: str, number: int) -> str:
    return hashlib.sha1(f"{repo} {number}".encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    @property
    def address(self) -> str:
        return f"http://{self.headers['Host']}"

    def log_message(self, *arguments: Any) -> None:
        pass

    def answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, what: str) -> None:
        self.answer({"error": "not found"}, 404, X_Error_Code=what, X_Error_Message="not found")

    def refused(self) -> bool:
        if self.hub.refuses is not None:
            self.answer({"error": "refused"}, self.hub.refuses)
        return self.hub.refuses is not None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if self.refused():
            return
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if name in self.hub.repos:
                return self.answer({"error": "exists", "url": f"{self.address}/{name}"}, 409)
            self.hub.created.append(asked)
            self.hub.tokens.append(self.headers["Authorization"])
            self.hub.repos[name] = [{".gitattributes": b"", "notes.txt": b"mine"}]
            return self.answer({"url": f"{self.address}/{name}"})
        if path == "/api/validate-yaml":  # of the card, before it is committed
            return self.answer({"errors": [], "warnings": []})
        if re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", path):
            names = [file["path"] for file in json.loads(body)["files"]]
            return self.answer(
                {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
            )
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            self.hub.tokens.append(self.headers["Authorization"])
            sha = self.hub.commit(found[1], [json.loads(line) for line in body.splitlines()])
            return self.answer({"commitOid": sha, "commitUrl": f"{self.address}/{found[1]}/commit/{sha}"})
        return self.missing("EntryNotFound")

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.refused():
            return None
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+?)(/revision/(.+)|/tree/([^/]+))?", path):
            repo, revision = found[1], found[3] or found[4] or "main"
            if repo not in self.hub.repos:
                return self.missing("RepoNotFound")
            files = self.hub.find(repo, revision)
            if files is None:
                return self.missing("RevisionNotFound")
            sha = _sha(repo, self.hub.repos[repo].index(files))
            if found[4]:
                return self.answer(
                    [{"type": "file", "path": name, "size": len(a), "oid": _blob(a)} for name, a in files.items()]
                )
            return self.answer({"id": repo, "sha": sha, "siblings": [{"rfilename": name} for name in files]})
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            content = (self.hub.find(found[1], found[2]) or {}).get(found[3])
            if content is None:
                return self.missing("EntryNotFound")
            if self.command == "GET":
                self.hub.downloads.append(found[3])
            commit = found[2] if found[2] != "main" else _sha(found[1], len(self.hub.repos[found[1]]) - 1)
            return self.answer(content, ETag=f'"{_blob(content)}"', X_Repo_Commit=commit)
        return self.missing("EntryNotFound")

    do_HEAD = do_GET


def _blob(content: bytes) -> str:
    """The id that git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
