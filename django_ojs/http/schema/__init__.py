"""The OpenAPI document: each route's request and answers, described beside the views.

`routes/` says what a route takes and answers, `components/` what the objects look like, and
`generator.py` puts them together. A route without a description fails a test.
"""
