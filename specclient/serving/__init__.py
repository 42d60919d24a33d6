"""The server: an ASGI application with the OpenAI HTTP routes over the request pipeline."""

from specclient.serving.app import create_app
from specclient.serving.limits import Limits
from specclient.serving.open_connections import raise_descriptor_limit
from specclient.serving.process_settings import (
    limit_kept_memory,
    shorten_switch_interval,
    tune_garbage_collection,
)
from specclient.serving.server import bind, make_server
from specclient.serving.warmup import preload
from specclient.serving.workers import ServerPlan, app_of, serve_by_workers

__all__ = [
    "Limits",
    "ServerPlan",
    "app_of",
    "bind",
    "create_app",
    "limit_kept_memory",
    "make_server",
    "preload",
    "raise_descriptor_limit",
    "serve_by_workers",
    "shorten_switch_interval",
    "tune_garbage_collection",
]
