"""The control plane: what operators look at and do (ojs-admin-api)."""
