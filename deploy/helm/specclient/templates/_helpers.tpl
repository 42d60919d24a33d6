{{- define "specclient.name" -}}
{{- if contains "specclient" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-specclient" (.Release.Name | trunc 39 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "specclient.selector" -}}
app.kubernetes.io/name: specclient
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "specclient.labels" -}}
{{ include "specclient.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "specclient.secretName" -}}
{{- .Values.secret.existing | default (include "specclient.name" .) -}}
{{- end -}}

{{/* Fail with the reason if the values cannot work, or would write a key or password into the ConfigMap. */}}
{{- define "specclient.check" -}}
{{- $config := .Values.config -}}
{{- if and .Values.configSecret $config -}}
{{- fail "config and configSecret are both set; write all settings into one of them" -}}
{{- end -}}
{{- if and (not .Values.secret.existing) (not .Values.secret.values.SPECCLIENT_SERVER_KEY) -}}
{{- fail "the gateway has no key: set secret.existing to the name of a Secret with SPECCLIENT_SERVER_KEY, or secret.values.SPECCLIENT_SERVER_KEY" -}}
{{- end -}}
{{- if not (or $config.ledger .Values.configSecret .Values.secret.existing .Values.secret.values.SPECCLIENT_LEDGER) -}}
{{- fail "no ledger is set: set config.ledger to postgresql://USER@HOST/DATABASE with PGPASSWORD in the Secret, or to off, which means no stored keys and budgets" -}}
{{- end -}}
{{- if regexMatch "://[^/@]*:[^/@]*@|[?&]password=" (toString $config.ledger) -}}
{{- fail "config.ledger holds a password, and a ConfigMap is no place for it; put PGPASSWORD into the Secret and write postgresql://USER@HOST/DATABASE" -}}
{{- end -}}
{{- range $name, $provider := $config.providers -}}
{{- range $key := list "api_key" "headers" -}}
{{- if hasKey $provider $key -}}
{{- fail (printf "config.providers.%s.%s may hold a key, and a ConfigMap is no place for it; use api_key_env with a variable of the Secret, or configSecret" $name $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $config.server (hasKey $config.server "redis_url") -}}
{{- fail "config.server.redis_url may hold a password, and a ConfigMap is no place for it; put SPECCLIENT_REDIS_URL into the Secret" -}}
{{- end -}}
{{- end -}}

{{/*
Write whole numbers of a dictionary as integers, in place. Helm reads all numbers as floating-point ones, and
an engine refuses a context of 8192.0 tokens.
*/}}
{{- define "specclient.integers" -}}
{{- $table := . -}}
{{- range $key, $value := $table -}}
{{- if kindIs "map" $value -}}
{{- include "specclient.integers" $value -}}
{{- else if kindIs "slice" $value -}}
{{- $items := list -}}
{{- range $item := $value -}}
{{- if kindIs "map" $item -}}{{- include "specclient.integers" $item -}}{{- end -}}
{{- if kindIs "float64" $item -}}
{{- $items = append $items (ternary (int64 $item) $item (eq (floor $item) $item)) -}}
{{- else -}}
{{- $items = append $items $item -}}
{{- end -}}
{{- end -}}
{{- $_ := set $table $key $items -}}
{{- else if kindIs "float64" $value -}}
{{- $_ := set $table $key (ternary (int64 $value) $value (eq (floor $value) $value)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
