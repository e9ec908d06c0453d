"""The conformance manifest (http-binding §21, conformance §4). Tests check all that it declares."""

from typing import Any, Final

from django_ojs.conf import settings
from django_ojs.extension import Declared
from django_ojs.hooks import registry
from django_ojs.http import compression
from django_ojs.http.headers import VERSION
from django_ojs.spec import urls
from django_ojs.storage import database
from django_ojs.version import VERSION as PACKAGE_VERSION

#: This package has no website of its own.
HOMEPAGE = "https://openjobspec.org"

#: The most jobs of one batch; a client sends more in several requests. Without this limit, 44 KB of
#: compressed data could bring 400,000 jobs.
MAX_BATCH: Final = 10_000

#: What this server declares without any extension.
_CORE: Final = (
    Declared(official="admin-api"),
    Declared(official="payload-limits"),
    Declared(official="progress"),
    Declared(experimental="framework-adapters"),
)
#: The capability that a level of conformance needs, beside those of the levels below.
_LEVELS: Final = {2: "cron_jobs", 3: "workflows", 4: "rate_limiting"}

#: The names of databases in the manifest (conformance §4), where they differ from Django's.
_BACKENDS: Final = {"postgresql": "postgres"}


def declared() -> list[Declared]:
    """Return what the core and the installed extensions declare."""
    return [*_CORE, *registry.brought("manifest", of=Declared)]


def manifest(base: str) -> dict[str, Any]:
    """Return the manifest of the API at `base`: an absolute URL that ends in /ojs."""
    limits = settings().limits
    found = declared()
    capabilities = {each.capability for each in found}
    # The parser of the standard library is not used: it raises ValueError for some hosts that a
    # client may name and Django accepts.
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
        "conformance_level": next(
            (level - 1 for level, needed in _LEVELS.items() if needed not in capabilities), 4
        ),
        "conformance_tier": "runtime",
        "protocols": ["http"],
        "backend": _BACKENDS.get(database.kind(), database.kind()),
        "capabilities": {
            "batch_enqueue": True,
            "cron_jobs": "cron_jobs" in capabilities,
            "dead_letter": True,
            "delayed_jobs": True,
            "job_ttl": True,
            "priority_queues": True,
            "rate_limiting": "rate_limiting" in capabilities,
            "schema_validation": False,
            "unique_jobs": True,
            "workflows": "workflows" in capabilities,
            "pause_resume": True,
        },
        "unique_job_strength": "strong",
        "schema_validation": False,
        "extensions": {
            "official": [
                {"name": name, "uri": f"urn:ojs:ext:{name}", "version": "1.0.0"}
                for name in sorted(each.official for each in found if each.official)
            ],
            "experimental": [
                {"name": name, "uri": f"urn:ojs:ext:experimental:{name}", "version": "0.1.0"}
                for name in sorted(each.experimental for each in found if each.experimental)
            ],
            "custom": [
                {"name": name, "uri": f"urn:ojs:ext:x:{name}", "version": "0.1.0"}
                for name in sorted(each.custom for each in found if each.custom)
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
            # The limits are repeated under the names that the website of OJS uses.
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
