"""Vector stores: files in them, batches and searches."""

from pathlib import Path

from openai import OpenAI
from openai.types import VectorStore
from openai.types.vector_stores import VectorStoreFile, VectorStoreFileBatch

client = OpenAI()
store: VectorStore = client.vector_stores.create(
    name="manuals", expires_after={"anchor": "last_active_at", "days": 7}
)
one: VectorStoreFile = client.vector_stores.files.upload_and_poll(
    vector_store_id=store.id, file=Path("a.pdf")
)
many: VectorStoreFileBatch = client.vector_stores.file_batches.create_and_poll(store.id, file_ids=["file-1"])
print(one.status, one.last_error, many.file_counts.completed, store.file_counts.total)
for hit in client.vector_stores.search(store.id, query="how to start", max_num_results=5):
    print(hit.filename, hit.score, [part.text for part in hit.content])
for file in client.vector_stores.files.list(vector_store_id=store.id, filter="completed"):
    print(file.id, file.usage_bytes, file.attributes)
client.vector_stores.files.update(one.id, vector_store_id=store.id, attributes={"kind": "manual"})
print(client.vector_stores.delete(store.id).deleted)
