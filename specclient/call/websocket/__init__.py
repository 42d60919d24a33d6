"""Calls over WebSockets: connections that reconnect, and a call in the ledger for each response."""
