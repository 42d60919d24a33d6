"""The request pipeline behind OpenAI's HTTP routes: an ASGI application, and a server for it."""

from specclient.serving.app import create_app
from specclient.serving.limits import Limits
from specclient.serving.server import bind, make_server, settle
from specclient.serving.warming import preload
from specclient.serving.workers import Plan, app_of, serve_by_workers

__all__ = [
    "Limits",
    "Plan",
    "app_of",
    "bind",
    "create_app",
    "make_server",
    "preload",
    "serve_by_workers",
    "settle",
]
