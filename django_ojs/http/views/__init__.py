"""The routes, a file for each resource. A view parses, calls an operation and renders."""
