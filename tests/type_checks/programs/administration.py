"""The administration API: projects, keys and costs, with a key of its own."""

from openai import OpenAI
from openai.types.admin.organization import Project

client = OpenAI(admin_api_key="sk-admin")
project: Project = client.admin.organization.projects.create(name="demo")
for key in client.admin.organization.projects.api_keys.list(project.id, limit=5):
    print(key.name, key.redacted_value)
costs = client.admin.organization.usage.costs(
    start_time=1_700_000_000, bucket_width="1d", group_by=["project_id"]
)
for bucket in costs.data:
    print(bucket.start_time, bucket.results)
