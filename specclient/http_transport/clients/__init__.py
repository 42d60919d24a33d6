"""HTTP clients: adapters of users' clients, and the package's own client over aiohttp."""
