"""A client of the service's API, over its Unix socket or by HTTP. It needs nothing beside Python."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Unpack, cast

from . import _documents
from ._api import Calls, JobChange, JobDetail, JobSpec, JobView
from ._documents import Place
from ._errors import FarhaulError, PeerError, UserError
from ._options import CopyOptions, SyncOptionsOfCall

__all__ = ["Service", "ServiceJob", "ServiceError"]


class ServiceError(FarhaulError):
    """The service has refused a request; `status` is the answer's status, and `fields` the fields of a job that it is about."""

    #: The status of the HTTP answer.
    status: int = 0
    #: The fields of a document that the problem is about.
    fields: list[str] = []


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Service(Calls):
    """A service. Its methods with names such as `get_jobs` are the requests of the API (docs/reference/api.md), one each; the
    others are for what programs do most.
    """

    def __init__(self, address: str | None = None, *, token: str | None = None, ca_file: str | None = None,
                 timeout: float | None = 60) -> None:
        """The address is `unix:PATH` of the socket or of the state directory, or `http://127.0.0.1:PORT`, `https://host[:port]`.
        Without TLS only this host is allowed, as others on the way could read the token. By default `FARHAUL_API` and
        `FARHAUL_TOKEN_FILE` say where the service is and which token to show, as for the command.
        """
        address = address or os.environ.get("FARHAUL_API") or "unix:/run/farhaul/api.sock"
        if token is None and (file := os.environ.get("FARHAUL_TOKEN_FILE")):
            with open(file) as lines:
                token = lines.read().strip()
        self._token, self._timeout, self._unix = token, timeout, ""
        self._tls: ssl.SSLContext | None = None
        if address.startswith(("unix:", "/")):
            path = address.removeprefix("unix:")
            self._unix = os.path.join(path, "api.sock") if os.path.isdir(path) else path
            return
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"{address}: the address of a service is unix:PATH, http://127.0.0.1:PORT or https://host",
                            code="FH-BAD-OPTION", blame="user", exit_code=2)
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise UserError(f"{address}: without TLS only a service of this host may be asked", code="FH-BAD-OPTION", blame="user",
                            exit_code=2)
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=ca_file)
        self._host, self._port = parts.hostname, parts.port

    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        if self._unix:
            return _UnixConnection(self._unix, timeout)
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _request(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, headers: Mapping[str, str | None] | None,
                 timeout: float | None) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        target = path + ("?" + urllib.parse.urlencode(given, doseq=True) if given else "")
        sent = {name: value for name, value in (headers or {}).items() if value is not None}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        content = None
        if body is not None:
            content, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = self._connect(timeout)
        try:
            connection.request(method, target, body=content, headers=sent)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _problem(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise PeerError(f"the service does not answer: {error}", code="FH-SERVICE", blame="peer", exit_code=5,
                            is_retryable=True) from error
        except BaseException:
            connection.close()
            raise
        return connection, answer

    def _ask(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None,
             headers: dict[str, str | None] | None = None) -> Any:
        connection, answer = self._request(method, path, query, body, headers, self._timeout)
        try:
            content = answer.read()
        finally:
            connection.close()
        if "json" not in (answer.headers.get_content_type() or "") or "ndjson" in answer.headers.get_content_type():
            return content.decode()
        return json.loads(content) if content else None

    # ---- jobs ----------------------------------------------------------------------------------------------------

    def submit(self, *places: Place, kind: Literal["copy", "sync"] = "copy", priority: int | None = None,
               not_before: str | None = None, finish_by: str | None = None, labels: dict[str, str] | None = None,
               receipt: bool | None = None, idempotency_key: str | None = None, **options: Unpack[SyncOptionsOfCall]) -> ServiceJob:
        """Gives the service a job: sources and a destination, as for `farhaul.copy`, with the options of a copy or a sync. A
        local path is one of the service's host; one without a slash in front begins in the present directory.
        """
        if len(places) < 2:
            raise UserError("name a source and a destination", code="FH-BAD-OPTION", blame="user", exit_code=2)
        document: dict[str, Any] = {
            "schema": 1, "kind": kind, "sources": [_place(place) for place in places[:-1]], "destination": _place(places[-1]),
            "options": _documents.options(options, is_sync=kind == "sync"),
        }
        further = {"priority": priority, "not_before": not_before, "finish_by": finish_by, "labels": labels, "receipt": receipt}
        document |= {name: value for name, value in further.items() if value is not None}
        view = self.post_jobs(cast("JobSpec", cast("object", document)), idempotency_key=idempotency_key)
        return ServiceJob(self, view["id"])

    def job(self, id: str) -> ServiceJob:
        """A job by its id."""
        return ServiceJob(self, id)

    def jobs(self, **filters: Any) -> Iterator[JobView]:
        """All jobs, newest first, page by page. The filters are those of `get_jobs`: `state`, `label`, `peer`, `owner`, `text`."""
        cursor = None
        while True:
            page = self.get_jobs(cursor=cursor, **filters)
            yield from page["jobs"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def cancel(self, id: str) -> JobView:
        """Cancels a job."""
        return self.post_jobs_id_cancel(id)

    def pause(self, id: str) -> JobView:
        """Pauses a job."""
        return self.post_jobs_id_pause(id)

    def resume(self, id: str) -> JobView:
        """Lets a paused job go on."""
        return self.post_jobs_id_resume(id)

    def events(self, *, job: str | None = None, after: int | None = None) -> Iterator[dict[str, Any]]:
        """What happens at the node, as it happens: dictionaries whose `event` says what. Without an end: leave the loop."""
        connection, answer = self._request("GET", "/api/v1/events", {"job": job, "after": after}, None, None, None)
        try:
            kind, data = "", []
            for raw in answer:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("event:"):
                    kind = line[6:].strip()
                elif line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif not line and data:
                    said = json.loads("\n".join(data))
                    yield said if isinstance(said, dict) and "event" in said else {"event": kind, "data": said}
                    kind, data = "", []
        finally:
            connection.close()


class ServiceJob:
    """A job of a service."""

    def __init__(self, service: Service, id: str) -> None:
        self.service, self.id = service, id

    def view(self) -> JobDetail:
        """The job as it is now, with how things stand with its transfer."""
        return self.service.get_jobs_id(self.id)

    @property
    def state(self) -> str:
        """Its state: `waiting`, `running`, `done`, `failed`, ..."""
        return str(self.view()["state"])

    def wait(self, timeout: float | None = None, *, every: float = 0.5) -> JobDetail:
        """Waits until the job is over and returns it. A job that has failed, or was cancelled, is an exception."""
        until = None if timeout is None else time.monotonic() + timeout
        while not (view := self.view())["is_over"]:
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {self.id} is {view['state']}")
            time.sleep(every)
        if view["state"] != "done":
            failure: Mapping[str, Any] = cast("Mapping[str, Any]", view.get("error") or {})
            text = failure.get("text") or f"job {self.id} is {view['state']}"
            raise ServiceError(str(text), code=str(failure.get("code") or "FH-JOB-FAILED"), blame="peer", hint=failure.get("hint"),
                               exit_code=1, report=dict(view))
        return view

    def cancel(self) -> JobView:
        """Cancels it."""
        return self.service.cancel(self.id)

    def pause(self) -> JobView:
        """Pauses it."""
        return self.service.pause(self.id)

    def resume(self) -> JobView:
        """Lets it go on."""
        return self.service.resume(self.id)

    def change(self, **fields: Any) -> JobView:
        """Changes fields of a job, such as its priority, its rate and its policy."""
        return self.service.patch_jobs_id(self.id, cast("JobChange", cast("object", fields)))

    def events(self) -> Iterator[dict[str, Any]]:
        """What happens to this job."""
        return self.service.events(job=self.id)

    def __repr__(self) -> str:
        return f"ServiceJob({self.id!r})"


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return [_text(part) for part in value] if isinstance(value, list) else str(value)


def _place(place: Place) -> str:
    """A location for a service, which has no current directory."""
    from ._native import parse

    text = _documents.written(place)
    kind, _, path = parse(text)
    is_made = path.startswith((b"zero:", b"random:", b"null:"))
    if kind != "local" or is_made or path.startswith(b"/"):
        return text
    full = os.path.abspath(os.fsdecode(path))
    return _documents.written(full + "/" if path.endswith(b"/") else full)


def _problem(status: int, content: bytes) -> ServiceError:
    """The exception for an answer that is a problem (RFC 9457)."""
    try:
        said = json.loads(content)
    except ValueError:
        said = {}
    if not isinstance(said, dict):
        said = {}
    text = said.get("detail") or said.get("title") or f"the service answered {status}"
    error = ServiceError(str(text), code=str(said.get("code") or f"HTTP-{status}"), blame="user" if status < 500 else "peer",
                         hint=said.get("hint"), exit_code=2 if status < 500 else 5, is_retryable=bool(said.get("retryable")))
    error.status, error.fields = status, [str(field) for field in said.get("fields") or ()]
    return error
