{{/* Names, labels, and what is derived from the gateway's own settings. */}}

{{- define "vlm-gateway.name" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "vlm-gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vlm-gateway.scheme" -}}
{{ ternary "HTTPS" "HTTP" (dig "server" "tls" "certificate_file" "" .Values.settings | not | not) }}
{{- end }}

{{- define "vlm-gateway.common" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "vlm-gateway.labels" -}}
{{ include "vlm-gateway.selector" . }}
{{ include "vlm-gateway.common" . }}
{{- end }}

{{- define "vlm-gateway.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "vlm-gateway.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "vlm-gateway.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{- define "vlm-gateway.port" -}}
{{- dig "server" "port" 8080 .Values.settings | int }}
{{- end }}

{{/* The settings file. Where servers are listed, the default address of one goes. */}}
{{- define "vlm-gateway.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- if and $settings.upstreams $settings.upstream }}
{{- $_ := unset $settings.upstream "url" }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{/* The gateway ends by itself after drain_seconds; what comes after is the kernel's kill. */}}
{{- define "vlm-gateway.graceSeconds" -}}
{{- dig "server" "drain_seconds" 30 .Values.settings | int | add 15 }}
{{- end }}

{{/* The ports of the model servers in settings, one a line. */}}
{{- define "vlm-gateway.upstreamPorts" -}}
{{- $urls := list (dig "upstream" "url" "http://127.0.0.1:8000" .Values.settings) }}
{{- with .Values.settings.upstreams }}
{{- $urls = list }}
{{- range . }}{{- $urls = append $urls .url }}{{- end }}
{{- end }}
{{- $ports := list }}
{{- range $urls }}
{{- $url := urlParse . }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" }}
{{- $ports = append $ports ($port | default (ternary "443" "80" (eq $url.scheme "https"))) }}
{{- end }}
{{- $ports | uniq | join "\n" }}
{{- end }}

{{/* Requests that wait, and those that would: refused a second x the seconds that one would have waited. */}}
{{- define "vlm-gateway.demandQuery" -}}
{{- $own := printf "namespace=%q,job=%q" .Release.Namespace (printf "%s/%s" .Release.Namespace (include "vlm-gateway.name" .)) }}
{{- $matchers := .Values.scaledObject.matchers | default $own }}
{{- $reasons := "queue_full|queue_bytes|would_miss_deadline|deadline_passed|kv_budget|encoder_budget|preprocess_budget|shed_priority|upstream_backpressure" }}
{{- $seconds := dig "queue" "wait_seconds" 30 .Values.settings }}
{{- printf "sum(gateway_upstream_requests_in_flight{%s}) + sum(gateway_queue_depth{%s}) + sum(rate(gateway_rejections_total{%s,reason=~%q}[2m])) * %v" $matchers $matchers $matchers $reasons $seconds }}
{{- end }}
