"""Examples for operators, in `files`: manifests for Kubernetes, units for systemd."""
