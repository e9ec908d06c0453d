"""Malformed and hostile bodies, and the error of each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MIB = 2**20
INVALID = (400, "invalid_payload")
REJECTED = (400, "invalid_request")
TOO_LARGE = (413, "PAYLOAD_TOO_LARGE")
META_TOO_LARGE = (413, "METADATA_TOO_LARGE")
COMPRESSED = (415, "UNSUPPORTED_COMPRESSION")
#: What the table says where a body is fine, however odd it looks.
STORED = (201, "")


@dataclass(frozen=True, kw_only=True)
class Abuse:
    """One request. `make` builds its body when it is needed: some are large."""

    name: str
    make: Callable[[], bytes]
    response: tuple[int, str]
    path: str = "jobs"
    headers: dict[str, str] = field(default_factory=dict)


def job(args: bytes = b"[]", more: bytes = b"") -> bytes:
    """Build a job around what is not to be built by a JSON library."""
    return b'{"type":"a","args":%s%s}' % (args, more)


def named(name: str, value: Any) -> bytes:
    return json.dumps({"type": "a", "args": [], name: value}).encode()


def sized(total: int) -> bytes:
    """Build a job of just so many bytes."""
    frame = job(b'[""]')
    return job(b'["%s"]' % (b"x" * (total - len(frame))))


def meta(total: int) -> bytes:
    """Build a job whose `meta` takes just so many bytes."""
    return job(more=b',"meta":{"x":"%s"}' % (b"x" * (total - len('{"x":""}'))))


def bodies(
    name: str, response: tuple[int, str], *made: Callable[[], bytes], **more: Any
) -> list[Abuse]:
    return [
        Abuse(
            name=f"{name} {number}" if len(made) > 1 else name, make=one, response=response, **more
        )
        for number, one in enumerate(made, 1)
    ]


TABLE: list[Abuse] = [
    # No JSON
    *bodies("empty", INVALID, lambda: b"", lambda: b" \n\t "),
    *bodies("a byte order mark", INVALID, lambda: b"\xef\xbb\xbf" + job()),
    *bodies(
        "UTF-16",
        INVALID,
        *(
            lambda e=e: job().decode().encode(e)
            for e in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")
        ),
    ),
    *bodies(
        "no UTF-8",
        INVALID,
        lambda: job(b'["\xff"]'),
        lambda: job(b'["\xc0\xaf"]'),
        lambda: job(b'["\xed\xa0\x80"]'),
    ),
    *bodies(
        "cut off",
        INVALID,
        lambda: job()[:-1],
        lambda: b'{"type":"a',
        lambda: b"{",
        lambda: b'{"a":tru',
    ),
    *bodies("a tail", INVALID, lambda: job() + b"x", lambda: job() + job()),
    *bodies(
        "other dialects",
        INVALID,
        lambda: b"{'type':'a'}",
        lambda: job(b"[1,]"),
        lambda: job(b"[01]"),
        lambda: job(b"[.5]"),
        lambda: job(b"[0x10]"),
        lambda: job(b"[] // c"),
        lambda: job(b'["\t"]'),
    ),
    *bodies(
        "no object",
        REJECTED,
        lambda: b"[]",
        lambda: b'"x"',
        lambda: b"null",
        lambda: b"1",
        lambda: b"true",
    ),
    # Values that not every database or language carries
    *bodies(
        "not a number",
        INVALID,
        *(
            lambda w=w: job(b"[%s]" % w)
            for w in (b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"1e999999999")
        ),
    ),
    *bodies(
        "NUL",
        INVALID,
        lambda: job(b'["\\u0000"]'),
        lambda: job(b'[{"\\u0000":1}]'),
        lambda: job(more=b',"x\\u0000":1'),
        lambda: job(b'["\x00"]'),
    ),
    *bodies(
        "a lone surrogate",
        INVALID,
        lambda: job(b'["\\ud800"]'),
        lambda: job(b'["\\udc00\\ud800"]'),
        lambda: job(b'[{"\\udfff":1}]'),
    ),
    *bodies(
        "a large integer",
        INVALID,
        lambda: job(b"[9007199254740992]"),
        lambda: job(b"[-9007199254740992]"),
        lambda: job(b"[1%s]" % (b"0" * 400)),
        lambda: job(b"[%s]" % (b"9" * 5_000)),
        lambda: job(b"[%s]" % (b"9" * MIB)),
    ),
    # Shapes
    *bodies(
        "depth 65",
        REJECTED,
        lambda: job(b"[" * 65 + b"]" * 65),
        lambda: job(b"[" + b'{"a":' * 64 + b"1" + b"}" * 64 + b"]"),
    ),
    *bodies(
        "depth 100,000",
        INVALID,
        lambda: job(b"[" * 100_000 + b"]" * 100_000),
        lambda: b"[" * 100_000,
        lambda: job(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ),
    *bodies("a long name", INVALID, lambda: job(b'[{"%s":1}]' % (b"x" * 65_537))),
    *bodies(
        "types mixed up",
        REJECTED,
        lambda: job(b"{}"),
        lambda: job(b'"x"'),
        lambda: named("meta", []),
        lambda: named("options", []),
        lambda: named("tags", {}),
    ),
    # One over each limit
    *bodies("an envelope of 10 MiB and one byte", TOO_LARGE, lambda: sized(10 * MIB + 1)),
    *bodies(
        "an envelope of wide letters",
        TOO_LARGE,
        lambda: job(b'["%s"]' % ("é".encode() * (5 * MIB))),
    ),
    *bodies("a body of 16 MiB and one byte", TOO_LARGE, lambda: sized(16 * MIB + 1)),
    *bodies("blanks", TOO_LARGE, lambda: b" " * (16 * MIB) + job()),
    *bodies("meta of 64 KiB and one byte", META_TOO_LARGE, lambda: meta(65_537)),
    *bodies(
        "meta of wide letters",
        META_TOO_LARGE,
        lambda: json.dumps(
            {"type": "a", "args": [], "meta": {"x": "é" * 33_000}}, ensure_ascii=False
        ).encode(),
    ),
    *bodies(
        "a type of 256 bytes",
        (400, "JOB_TYPE_TOO_LONG"),
        lambda: named("type", "a" * 256),
        lambda: named("type", "a" * MIB),
    ),
    *bodies(
        "a queue of 256 bytes",
        (400, "QUEUE_NAME_TOO_LONG"),
        lambda: named("queue", "a" * 256),
        lambda: named("queue", "ä" * 128),
    ),
    *bodies("a schema that goes on", REJECTED, lambda: named("schema", "urn:" + "x" * 2_048)),
    *bodies("a priority of 101", REJECTED, lambda: named("priority", 101)),
    *bodies(
        "a timeout of 25 days",
        REJECTED,
        lambda: named("timeout_ms", 2**31),
        lambda: named("timeout", 2**31),
    ),
    # What regular expressions and calendars dislike
    *bodies(
        "a type of dots",
        REJECTED,
        lambda: named("type", "a" + ".a" * 126 + "."),
        lambda: named("type", "-" * 255),
    ),
    *bodies(
        "a time of digits",
        REJECTED,
        lambda: named("scheduled_at", "9" * MIB),
        lambda: named("scheduled_at", "+PT" + "9" * MIB + "S"),
        lambda: named("scheduled_at", "9999-12-31T23:59:59-23:59"),
        lambda: named("expires_at", "+P9999999Y"),
        lambda: named("scheduled_at", "2030-02-30T00:00:00Z"),
    ),
    *bodies(
        "a policy of extremes",
        (422, "invalid_request"),
        lambda: named("retry", {"max_attempts": 2**31}),
        lambda: named("retry", {"backoff_coefficient": 0.5}),
        lambda: named("retry", {"initial_interval": "PT" + "9" * 999 + "S"}),
    ),
    # Coats
    *bodies(
        "a bomb",
        TOO_LARGE,
        lambda: gzip.compress(b" " * (32 * MIB)),
        lambda: gzip.compress(b" " * (64 * MIB) + job()),
        headers={"Content-Encoding": "gzip"},
    ),
    *bodies(
        "no archive",
        INVALID,
        job,
        lambda: gzip.compress(job())[:-9],
        lambda: gzip.compress(job())[:-1],
        lambda: gzip.compress(job()) + b"tail",
        headers={"Content-Encoding": "gzip"},
    ),
    *bodies(
        "an archive of abuse",
        INVALID,
        lambda: gzip.compress(b"[" * 100_000),
        lambda: gzip.compress(b""),
        headers={"Content-Encoding": "gzip"},
    ),
    *bodies(
        "no archive of another kind",
        INVALID,
        job,
        lambda: b"\x28\xb5\x2f\xfd" * 1_000,
        headers={"Content-Encoding": "zstd"},
    ),
    *bodies(
        "coats over coats",
        COMPRESSED,
        lambda: gzip.compress(gzip.compress(job())),
        headers={"Content-Encoding": "gzip, gzip"},
    ),
    *bodies("an archive that does not say so", INVALID, lambda: gzip.compress(job())),
    # Many at once
    *bodies(
        "a batch of nothing",
        REJECTED,
        lambda: b'{"jobs":[]}',
        lambda: b"{}",
        lambda: b'{"jobs":{}}',
        path="jobs/batch",
    ),
    *bodies(
        "a batch of 200,000 nulls",
        TOO_LARGE,
        lambda: b'{"jobs":[%s]}' % b",".join([b"null"] * 200_000),
        path="jobs/batch",
    ),
    *bodies(
        "a batch of 10,000 nulls",
        REJECTED,
        lambda: b'{"jobs":[%s]}' % b",".join([b"null"] * 10_000),
        path="jobs/batch",
    ),
    *bodies(
        "a batch with one too large",
        TOO_LARGE,
        lambda: b'{"jobs":[%s,%s]}' % (job(), sized(10 * MIB + 1)),
        path="jobs/batch",
    ),
    *bodies(
        "a fetch of 100,000 queues",
        REJECTED,
        lambda: json.dumps({"queues": [f"q{n}" for n in range(100_000)]}).encode(),
        path="workers/fetch",
    ),
    *bodies(
        "a beat with 20,000 jobs",
        REJECTED,
        lambda: json.dumps({"worker_id": "w", "active_jobs": ["x"] * 20_000}).encode(),
        path="workers/heartbeat",
    ),
    # Odd, and fine
    *bodies(
        "100,000 names",
        STORED,
        lambda: job(json.dumps([{f"k{n}": n for n in range(100_000)}]).encode()),
    ),
    *bodies(
        "100,000 unknown fields",
        STORED,
        lambda: job(more=b"," + json.dumps({f"k{n}": n for n in range(100_000)}).encode()[1:-1]),
    ),
    *bodies(
        "repeated names",
        STORED,
        lambda: b'{"type":"b",' * 1 + job()[1:],
        lambda: job(b"[{%s}]" % b",".join([b'"a":1'] * 100_000)),
    ),
    *bodies("a million small values", STORED, lambda: job(b"[%s]" % b",".join([b"1"] * 10**6))),
    *bodies("depth 64", STORED, lambda: job(b"[" * 64 + b"]" * 64)),
    *bodies("10 MiB to the byte", STORED, lambda: sized(10 * MIB)),
    *bodies("meta of 64 KiB to the byte", STORED, lambda: meta(65_536)),
    *bodies("quotes and escapes", STORED, lambda: job(b'["%s"]' % (b'\\"\\\\\\u001f' * 100_000))),
    *bodies("surrogates in pairs", STORED, lambda: job(b'["%s"]' % (b"\\ud83d\\ude00" * 10_000))),
    *bodies("the largest integers", STORED, lambda: job(b"[9007199254740991,-9007199254740991]")),
    *bodies("small and large floats", STORED, lambda: job(b"[1e308,-1e308,5e-324,1e-400,-0.0]")),
    *bodies("a prototype", STORED, lambda: job(more=b',"__proto__":{"x":1},"constructor":1')),
    *bodies(
        "a reference",
        STORED,
        lambda: job(b'[{"__ojs_ref":"http://169.254.169.254/","checksum":"sha256:0"}]'),
    ),
]
