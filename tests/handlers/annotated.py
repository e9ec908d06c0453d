"""Handlers whose annotations are real objects and strings; no `from __future__` here."""

import django_ojs as ojs
from django_ojs import JobContext


def _response(ctx: JobContext, greeting: str) -> str:
    return f"{greeting} {ctx.attempt}"


@ojs.job("test.annotated.name")
def by_name(ctx: JobContext, greeting: str) -> str:
    return _response(ctx, greeting)


@ojs.job("test.annotated.module")
def by_module(ctx: ojs.JobContext, greeting: str) -> str:
    return _response(ctx, greeting)


@ojs.job("test.annotated.quoted")
def by_quoted_name(ctx: "ojs.JobContext", greeting: str) -> str:
    return _response(ctx, greeting)


@ojs.job("test.annotated.plain")
def plain(ctx: str, greeting: str) -> str:
    return ctx + greeting


def unannotated(image_id, spec="thumbnail", quality=80):  # type: ignore[no-untyped-def]
    return image_id, spec, quality
