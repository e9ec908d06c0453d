"""The conformance manifest (http-binding §21, conformance §4). Tests check all it declares."""

from typing import Any, Final

from django_ojs.conf import settings
from django_ojs.http import compression
from django_ojs.http.headers import VERSION
from django_ojs.spec import urls
from django_ojs.storage import database
from django_ojs.version import VERSION as PACKAGE_VERSION

#: The project has no site of its own.
HOMEPAGE = "https://openjobspec.org"

#: Jobs of one batch: more of them are sent in several requests. Compressed, 44 KB are 400,000 jobs.
MAX_BATCH: Final = 10_000

#: Name, as in `urn:ojs:ext:<name>`, of each official extension whose requirements all hold.
EXTENSIONS: tuple[str, ...] = (
    "admin-api",
    "backpressure",
    "durable-execution",
    "payload-limits",
    "progress",
    "rate-limiting",
    "webhooks",
)
#: The same, as in `urn:ojs:ext:experimental:<name>`.
EXPERIMENTAL: tuple[str, ...] = ("framework-adapters", "realtime")


def manifest(base: str) -> dict[str, Any]:
    """Return the manifest of the API at `base`: an absolute URL that ends in /ojs."""
    limits = settings().limits
    # Not the parser of the standard library, which raises ValueError for some hosts that a client
    # may name and Django accepts.
    _, _, path = urls.split(base)
    return {
        "specversion": VERSION,
        "ojs_version": VERSION,
        "implementation": {
            "name": "django-ojs",
            "version": PACKAGE_VERSION,
            "language": "python",
            "homepage": HOMEPAGE,
        },
        "conformance_level": 4,
        "conformance_tier": "runtime",
        "protocols": ["http"],
        "backend": database.dialect().backend,
        "capabilities": {
            "batch_enqueue": True,
            "cron_jobs": True,
            "dead_letter": True,
            "delayed_jobs": True,
            "job_ttl": True,
            "priority_queues": True,
            "rate_limiting": True,
            "schema_validation": False,
            "unique_jobs": True,
            "workflows": True,
            "pause_resume": True,
        },
        "unique_job_strength": "strong",
        "schema_validation": False,
        "extensions": {
            "official": [
                {"name": name, "uri": f"urn:ojs:ext:{name}", "version": "1.0.0"}
                for name in EXTENSIONS
            ],
            "experimental": [
                {"name": name, "uri": f"urn:ojs:ext:experimental:{name}", "version": "0.1.0"}
                for name in EXPERIMENTAL
            ],
            # payload-limits §8.1
            "payload_limits": {
                "max_envelope_bytes": limits.envelope_bytes,
                "max_meta_bytes": limits.meta_bytes,
                "max_queue_name_bytes": limits.queue_bytes,
                "max_job_type_bytes": limits.type_bytes,
                "supported_compression": compression.supported(),
                "external_references": True,
                "chunking": False,
                "per_queue_limits": True,
            },
        },
        "limits": {
            # Also under the names that the website of OJS uses.
            "max_job_size_bytes": limits.envelope_bytes,
            "max_meta_size_bytes": limits.meta_bytes,
            "max_queue_name_length": limits.queue_bytes,
            "max_type_length": limits.type_bytes,
            "max_envelope_bytes": limits.envelope_bytes,
            "max_metadata_bytes": limits.meta_bytes,
            "max_queue_name_bytes": limits.queue_bytes,
            "max_job_type_bytes": limits.type_bytes,
            "max_batch_size": MAX_BATCH,
            "max_body_bytes": settings().http_max_body_bytes,
        },
        "endpoints": {
            "base_url": f"{base}/v1",
            "manifest": f"{path}/manifest",
            "health": f"{path}/v1/health",
        },
    }
