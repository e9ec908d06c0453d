"""An app that configures the SDK of OpenTelemetry as a project does; spans go to a file."""
