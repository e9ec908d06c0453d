"""The control plane, for operators (ojs-admin-api)."""
