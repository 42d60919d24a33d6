"""The rows of what runs an organization: keys, users, groups, roles, spending and usage."""

from __future__ import annotations

from specclient.resources.table.rows import Row, group, row

ROWS: tuple[Row, ...] = (
    *group(
        "admin.organization.admin_api_keys",
        "/organization/admin_api_keys",
        row("create", "POST", "name! expires_in_seconds", "AdminAPIKeyCreateResponse"),
        row("retrieve", "GET /{key_id}", "", "AdminAPIKey"),
        row("list", "GET", "after limit order", "CursorPage[AdminAPIKey]"),
        row("delete", "DELETE /{key_id}", "", "AdminAPIKeyDeleteResponse"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.audit_logs",
        "/organization/audit_logs",
        row(
            "list",
            "GET",
            "actor_emails actor_ids after before effective_at event_types limit project_ids "
            "resource_ids tenant_only",
            "ConversationCursorPage[AuditLogListResponse]",
        ),
        types="admin.organization",
    ),
    *group(
        "admin.organization.certificates",
        "/organization/certificates",
        row("create", "POST", "certificate! name", "Certificate"),
        row("retrieve", "GET /{certificate_id}", "include", "Certificate"),
        row("update", "POST /{certificate_id}", "name", "Certificate"),
        row("list", "GET", "after limit order", "ConversationCursorPage[CertificateListResponse]"),
        row("delete", "DELETE /{certificate_id}", "", "CertificateDeleteResponse"),
        row("activate", "POST /activate", "certificate_ids!", "Page[CertificateActivateResponse]"),
        row("deactivate", "POST /deactivate", "certificate_ids!", "Page[CertificateDeactivateResponse]"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.data_retention",
        "/organization/data_retention",
        row("retrieve", "GET", "", "OrganizationDataRetention"),
        row("update", "POST", "retention_type!", "OrganizationDataRetention"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.external_keys",
        "/organization/external_keys",
        row(
            "create",
            "POST",
            "external_id kms_arn name! role_arn type! purpose audience kms_key_location "
            "kms_key_name kms_key_ring_name kms_project_id workload_identity_pool_id "
            "workload_identity_project_number workload_identity_provider_id kms_key_version "
            "key_name tenant_id vault_uri key_version key_ocid region vault_ocid "
            "key_version_ocid",
            "ExternalKey",
            either=(
                "external_id kms_arn role_arn",
                "audience kms_key_location kms_key_name kms_key_ring_name kms_project_id "
                "workload_identity_pool_id workload_identity_project_number workload_identity_provider_id",
                "key_name tenant_id vault_uri",
                "key_ocid region vault_ocid",
            ),
        ),
        row("retrieve", "GET /{external_key_id}", "", "ExternalKey"),
        row("list", "GET", "after limit order purpose", "CursorPage[ExternalKey]"),
        row("delete", "DELETE /{external_key_id}", "", "ExternalKey"),
        row("validate", "POST /{external_key_id}/validate", "", "ExternalKeyValidateResponse"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.external_storage",
        "/organization/external_storage",
        row("create", "POST", "project_id! provider!", "ExternalStorageConfiguration"),
        row("retrieve", "GET /{external_storage_id}", "", "ExternalStorageConfiguration"),
        row("list", "GET", "after limit order project_id", "CursorPage[ExternalStorageConfiguration]"),
        row("delete", "DELETE /{external_storage_id}", "", "ExternalStorageDeleted"),
        row("validate", "POST /{external_storage_id}/validate", "", "ExternalStorageConfiguration"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.groups",
        "/organization/groups",
        row("create", "POST", "name!", "Group"),
        row("retrieve", "GET /{group_id}", "", "Group"),
        row("update", "POST /{group_id}", "name!", "GroupUpdateResponse"),
        row("list", "GET", "after limit order", "NextCursorPage[Group]"),
        row("delete", "DELETE /{group_id}", "", "GroupDeleteResponse"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.groups.roles",
        "/organization/groups/{group_id}/roles",
        row("create", "POST", "role_id!", "RoleCreateResponse"),
        row("retrieve", "GET /{role_id}", "", "RoleRetrieveResponse"),
        row("list", "GET", "after limit order", "NextCursorPage[RoleListResponse]"),
        row("delete", "DELETE /{role_id}", "", "RoleDeleteResponse"),
        types="admin.organization.groups",
    ),
    *group(
        "admin.organization.groups.users",
        "/organization/groups/{group_id}/users",
        row("create", "POST", "user_id!", "UserCreateResponse"),
        row("retrieve", "GET /{user_id}", "", "UserRetrieveResponse"),
        row("list", "GET", "after limit order", "NextCursorPage[OrganizationGroupUser]"),
        row("delete", "DELETE /{user_id}", "", "UserDeleteResponse"),
        types="admin.organization.groups",
    ),
    *group(
        "admin.organization.invites",
        "/organization/invites",
        row("create", "POST", "email! role! projects", "Invite"),
        row("retrieve", "GET /{invite_id}", "", "Invite"),
        row("list", "GET", "after limit", "ConversationCursorPage[Invite]"),
        row("delete", "DELETE /{invite_id}", "", "InviteDeleteResponse"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.roles",
        "/organization/roles",
        row("create", "POST", "permissions! role_name! description", "Role"),
        row("retrieve", "GET /{role_id}", "", "Role"),
        row("update", "POST /{role_id}", "description permissions role_name", "Role"),
        row("list", "GET", "after limit order", "NextCursorPage[Role]"),
        row("delete", "DELETE /{role_id}", "", "RoleDeleteResponse"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.spend_alerts",
        "/organization/spend_alerts",
        row(
            "create",
            "POST",
            "currency! interval! notification_channel! threshold_amount!",
            "OrganizationSpendAlert",
        ),
        row("retrieve", "GET /{alert_id}", "", "OrganizationSpendAlert"),
        row(
            "update",
            "POST /{alert_id}",
            "currency! interval! notification_channel! threshold_amount!",
            "OrganizationSpendAlert",
        ),
        row("list", "GET", "after before limit order", "ConversationCursorPage[OrganizationSpendAlert]"),
        row("delete", "DELETE /{alert_id}", "", "OrganizationSpendAlertDeleted"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.spend_limit",
        "/organization/spend_limit",
        row("retrieve", "GET", "", "OrganizationSpendLimit"),
        row("update", "POST", "currency! interval! threshold_amount!", "OrganizationSpendLimit"),
        row("delete", "DELETE", "", "OrganizationSpendLimitDeleted"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.usage",
        "/organization",
        row(
            "audio_speeches",
            "GET /usage/audio_speeches",
            "start_time! api_key_ids bucket_width end_time group_by limit models page project_ids user_ids",
            "UsageAudioSpeechesResponse",
        ),
        row(
            "audio_transcriptions",
            "GET /usage/audio_transcriptions",
            "start_time! api_key_ids bucket_width end_time group_by limit models page project_ids user_ids",
            "UsageAudioTranscriptionsResponse",
        ),
        row(
            "code_interpreter_sessions",
            "GET /usage/code_interpreter_sessions",
            "start_time! bucket_width end_time group_by limit page project_ids",
            "UsageCodeInterpreterSessionsResponse",
        ),
        row(
            "completions",
            "GET /usage/completions",
            "start_time! api_key_ids batch bucket_width end_time group_by limit models page "
            "project_ids user_ids",
            "UsageCompletionsResponse",
        ),
        row(
            "costs",
            "GET /costs",
            "start_time! api_key_ids bucket_width end_time group_by limit line_items page project_ids",
            "UsageCostsResponse",
        ),
        row(
            "decisions",
            "GET /usage/decisions",
            "start_time! api_key_ids batch bucket_width end_time group_by limit models page "
            "project_ids user_ids",
            "UsageDecisionsResponse",
        ),
        row(
            "embeddings",
            "GET /usage/embeddings",
            "start_time! api_key_ids bucket_width end_time group_by limit models page project_ids user_ids",
            "UsageEmbeddingsResponse",
        ),
        row(
            "file_search_calls",
            "GET /usage/file_search_calls",
            "start_time! api_key_ids bucket_width end_time group_by limit page project_ids "
            "user_ids vector_store_ids",
            "UsageFileSearchCallsResponse",
        ),
        row(
            "images",
            "GET /usage/images",
            "start_time! api_key_ids bucket_width end_time group_by limit models page "
            "project_ids sizes sources user_ids",
            "UsageImagesResponse",
        ),
        row(
            "moderations",
            "GET /usage/moderations",
            "start_time! api_key_ids bucket_width end_time group_by limit models page project_ids user_ids",
            "UsageModerationsResponse",
        ),
        row(
            "vector_stores",
            "GET /usage/vector_stores",
            "start_time! bucket_width end_time group_by limit page project_ids",
            "UsageVectorStoresResponse",
        ),
        row(
            "web_search_calls",
            "GET /usage/web_search_calls",
            "start_time! api_key_ids bucket_width context_levels end_time group_by limit "
            "models page project_ids user_ids",
            "UsageWebSearchCallsResponse",
        ),
        types="admin.organization",
    ),
    *group(
        "admin.organization.users",
        "/organization/users",
        row("retrieve", "GET /{user_id}", "", "OrganizationUser"),
        row(
            "update", "POST /{user_id}", "developer_persona role role_id technical_level", "OrganizationUser"
        ),
        row("list", "GET", "after emails limit", "ConversationCursorPage[OrganizationUser]"),
        row("delete", "DELETE /{user_id}", "", "UserDeleteResponse"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.users.roles",
        "/organization/users/{user_id}/roles",
        row("create", "POST", "role_id!", "RoleCreateResponse"),
        row("retrieve", "GET /{role_id}", "", "RoleRetrieveResponse"),
        row("list", "GET", "after limit order", "NextCursorPage[RoleListResponse]"),
        row("delete", "DELETE /{role_id}", "", "RoleDeleteResponse"),
        types="admin.organization.users",
    ),
    *group(
        "admin.organization.workload_identity_providers",
        "/organization/workload_identity_providers",
        row(
            "create",
            "POST",
            "audience! issuer! name! type! attribute_transformations description enabled verification",
            "WorkloadIdentityProvider",
        ),
        row("retrieve", "GET /{workload_identity_provider_id}", "", "WorkloadIdentityProvider"),
        row(
            "update",
            "POST /{workload_identity_provider_id}",
            "attribute_transformations audience description enabled issuer name verification",
            "WorkloadIdentityProvider",
        ),
        row("list", "GET", "after limit order", "CursorPage[WorkloadIdentityProvider]"),
        row("delete", "DELETE /{workload_identity_provider_id}", "", "WorkloadIdentityProviderDeleted"),
        types="admin.organization",
    ),
    *group(
        "admin.organization.workload_identity_providers.federation_rules",
        "/organization/workload_identity_providers/{workload_identity_provider_id}/federation_rules",
        row(
            "create",
            "POST",
            "attribute_matchers! project_id! service_account_id! description enabled name permissions",
            "FederationRule",
        ),
        row("retrieve", "GET /{workload_identity_federation_rule_id}", "", "FederationRule"),
        row(
            "update",
            "POST /{workload_identity_federation_rule_id}",
            "attribute_matchers description enabled name permissions",
            "FederationRule",
        ),
        row("list", "GET", "after limit order service_account_id", "CursorPage[FederationRule]"),
        row("delete", "DELETE /{workload_identity_federation_rule_id}", "", "FederationRuleDeleted"),
        types="admin.organization.workload_identity_providers",
    ),
)
