"""Files for operators, in `files`: Kubernetes, systemd, Prometheus and Grafana."""
