{{- define "sluice.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* http or https: of the probes, and the name of the port. */ -}}
{{- define "sluice.scheme" -}}
{{- if .Values.tls.secret }}https{{ else }}http{{ end -}}
{{- end }}

{{- define "sluice.port" -}}
{{- .Values.service.port | default (ternary 443 80 (ne .Values.tls.secret "")) -}}
{{- end }}

{{- /* The secret that holds the keys; empty: there is none. */ -}}
{{- define "sluice.secret" -}}
{{- if .Values.existingSecret }}{{ .Values.existingSecret }}
{{- else if or .Values.apiKey .Values.adminApiKey .Values.hfToken }}{{ include "sluice.name" . }}{{ end -}}
{{- end }}

{{- /* The secret that holds what nodes know each other by. */ -}}
{{- define "sluice.nodesSecret" -}}
{{- .Values.nodes.existingSecret | default (printf "%s-nodes" (include "sluice.name" .)) -}}
{{- end }}
