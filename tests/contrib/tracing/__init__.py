"""An app that configures the SDKs of OpenTelemetry and Sentry, which write files."""
