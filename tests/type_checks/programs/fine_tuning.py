"""Fine-tuning jobs: creation, events and checkpoints."""

from openai import OpenAI
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent

client = OpenAI()
job: FineTuningJob = client.fine_tuning.jobs.create(
    model="gpt-4o-mini-2024-07-18",
    training_file="file-1",
    suffix="mine",
    seed=1,
    method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}},
)
events: list[FineTuningJobEvent] = list(client.fine_tuning.jobs.list_events(job.id, limit=50))
for event in events:
    print(event.created_at, event.level, event.message)
for checkpoint in client.fine_tuning.jobs.checkpoints.list(job.id):
    print(checkpoint.step_number, checkpoint.metrics.train_loss)
if job.status == "running":
    job = client.fine_tuning.jobs.cancel(job.id)
print(job.fine_tuned_model, job.error.message if job.error else None, job.hyperparameters.n_epochs)
