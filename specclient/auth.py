"""Workload identities, under the OpenAI client's module path."""

from specclient.client.subject_tokens import (
    SubjectTokenProvider,
    azure_managed_identity_token_provider,
    gcp_id_token_provider,
    k8s_service_account_token_provider,
)
from specclient.client.workload_identity import (
    WorkloadIdentity,
    WorkloadIdentityAuth,
    X509WorkloadIdentity,
    x509_workload_identity,
)

SubjectTokenWorkloadIdentity = WorkloadIdentity

__all__ = [
    "SubjectTokenProvider",
    "SubjectTokenWorkloadIdentity",
    "WorkloadIdentity",
    "WorkloadIdentityAuth",
    "X509WorkloadIdentity",
    "azure_managed_identity_token_provider",
    "gcp_id_token_provider",
    "k8s_service_account_token_provider",
    "x509_workload_identity",
]
