"""Pages of lists: items of all pages, page by page, and one page."""

from openai import OpenAI
from openai.pagination import SyncCursorPage
from openai.types import FileObject
from openai.types.fine_tuning import FineTuningJob

client = OpenAI()
every: list[FineTuningJob] = []
for job in client.fine_tuning.jobs.list(limit=20):
    every.append(job)
first: SyncCursorPage[FileObject] = client.files.list()
while True:
    print([file.id for file in first.data], first.has_more)
    if not first.has_next_page():
        break
    print(first.next_page_info())
    first = first.get_next_page()
for page in client.models.list().iter_pages():
    print(len(page.data))
