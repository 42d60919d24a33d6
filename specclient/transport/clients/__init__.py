"""HTTP clients behind one interface: aiohttp, httpx, or the caller's own."""
