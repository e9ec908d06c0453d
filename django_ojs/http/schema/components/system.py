"""Manifest, health and readiness (http-binding §8, §21)."""

from typing import Final

from django_ojs.http.schema.values import (
    COUNT,
    NUMBER,
    OBJECT,
    STRING,
    Schema,
    answer,
    array,
    enum,
    object_,
)

SCHEMAS: Final[dict[str, Schema]] = {
    "Manifest": object_(
        {
            "specversion": STRING,
            "ojs_version": STRING,
            "implementation": object_(
                {"name": STRING, "version": STRING, "language": STRING, "homepage": STRING},
                ["name", "version", "language"],
            ),
            "conformance_level": COUNT,
            "conformance_tier": STRING,
            "protocols": array(STRING),
            "backend": STRING,
            "capabilities": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "extensions": object_(
                {
                    "official": array(OBJECT),
                    "experimental": array(OBJECT),
                    "payload_limits": OBJECT,
                },
                ["official", "experimental"],
            ),
            "limits": OBJECT,
            "endpoints": OBJECT,
        },
        [
            "specversion",
            "implementation",
            "conformance_level",
            "protocols",
            "backend",
            "capabilities",
            "extensions",
        ],
    ),
    "Health": answer(
        status=enum("ok", "ready", "degraded"),
        version=STRING,
        uptime_seconds=COUNT,
        backend=object_(
            {"type": STRING, "status": enum("connected", "disconnected"), "latency_ms": NUMBER},
            ["type", "status"],
        ),
    ),
    "OpenAPI": object_(
        {"openapi": STRING, "info": OBJECT, "paths": OBJECT, "components": OBJECT},
        ["openapi", "info", "paths", "components"],
    ),
}
