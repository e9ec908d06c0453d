"""The views, a module for each resource. A view parses, calls an operation and renders."""
