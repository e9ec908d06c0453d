from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import sentry_sdk
from django.apps import AppConfig
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_ojs.contrib.sentry import OJSIntegration


class FileTransport(Transport):
    """Writes events when it is flushed, and loses what is not, as one that sends them does."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        super().__init__(options)
        self._unsent: list[bytes] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self._unsent.append(json.dumps(event, default=str).encode() + b"\n")

    def flush(self, timeout: float, callback: Any = None) -> None:
        with Path(os.environ["OJS_TEST_EVENTS"]).open("ab") as out:
            out.writelines(self._unsent)
        self._unsent.clear()


class TracingConfig(AppConfig):
    name = "tests.contrib.tracing"

    def ready(self) -> None:
        # Appended by each process: the supervisor's children share the open file.
        out = Path(os.environ["OJS_TEST_SPANS"]).open("a")  # noqa: SIM115 - until the process ends
        exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(None) + "\n")
        provider = TracerProvider()
        # So late that nothing is exported before the end of the process.
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))
        trace.set_tracer_provider(provider)
        if "OJS_TEST_EVENTS" in os.environ:
            sentry_sdk.init(transport=FileTransport(), integrations=[OJSIntegration()])
