{{/* Short name: the chart's, or nameOverride. */}}
{{- define "flashfleet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* What names of objects start with. At most 40 characters, so that `-operator-metrics` still fits behind it. */}}
{{- define "flashfleet.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := include "flashfleet.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Labels that never change in an object's life. Call with (list . COMPONENT). */}}
{{- define "flashfleet.selectorLabels" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ include "flashfleet.name" $top }}
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels. Call with (list . COMPONENT). */}}
{{- define "flashfleet.labels" -}}
{{- $top := index . 0 -}}
{{ include "flashfleet.selectorLabels" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: flashfleet
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_" }}
{{- with $top.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* An image's whole name: the digest where one is given, else the tag, else the chart's appVersion. Call with (list . IMAGE). */}}
{{- define "flashfleet.image" -}}
{{- $top := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default $top.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end }}

{{- define "flashfleet.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-operator" (include "flashfleet.fullname" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* The namespaces that the operator looks after, as a JSON list: the release's own where none is named. */}}
{{- define "flashfleet.namespaces" -}}
{{- if .Values.operator.watchNamespaces -}}
{{- .Values.operator.watchNamespaces | uniq | sortAlpha | toJson -}}
{{- else -}}
{{- list .Release.Namespace | toJson -}}
{{- end -}}
{{- end }}

{{/* The Secret with the queue's address, in each of these namespaces. */}}
{{- define "flashfleet.brokerSecret" -}}
{{- if .Values.redis.enabled -}}
{{- default (printf "%s-broker" (include "flashfleet.fullname" .)) .Values.redis.existingSecret -}}
{{- else -}}
{{- .Values.broker.existingSecret -}}
{{- end -}}
{{- end }}

{{- define "flashfleet.brokerKey" -}}
{{- if .Values.redis.enabled -}}url{{- else -}}{{- .Values.broker.existingSecretKey -}}{{- end -}}
{{- end }}

{{- define "flashfleet.pullSecrets" -}}
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}

{{/* Labels of pods: without versions, so that an upgrade of the chart restarts only what it changes. Call with (list . COMPONENT). */}}
{{- define "flashfleet.podLabels" -}}
{{ include "flashfleet.selectorLabels" . }}
app.kubernetes.io/part-of: flashfleet
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
