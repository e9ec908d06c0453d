"""Keeps the incidents of `reports.incidents`, and shows them over HTTP and in the metrics."""
