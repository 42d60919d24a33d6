import ray


def _internal_kv_put(key: str, value: str) -> None:
    state = ray.cluster()
    state["stored"][key] = value
    ray.write(state)


def _internal_kv_get(key: str) -> bytes | None:
    found = ray.cluster()["stored"].get(key)
    return None if found is None else found.encode()


def _internal_kv_del(key: str) -> None:
    state = ray.cluster()
    state["stored"].pop(key, None)
    ray.write(state)
