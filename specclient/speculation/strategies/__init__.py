"""Speculation played from this side: predicted outputs, committed prefixes, verification over the wire."""

from specclient.speculation.strategies.base import IN_PROCESS, Outcome, Server, Table
from specclient.speculation.strategies.choosing import choose, resolve
from specclient.speculation.strategies.playing import stream, whole
from specclient.speculation.strategies.worth import History, Worth, worth_sending

__all__ = [
    "IN_PROCESS",
    "History",
    "Outcome",
    "Server",
    "Table",
    "Worth",
    "choose",
    "resolve",
    "stream",
    "whole",
    "worth_sending",
]
