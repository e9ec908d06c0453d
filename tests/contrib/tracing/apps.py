from __future__ import annotations

import os
from pathlib import Path

from django.apps import AppConfig
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


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
