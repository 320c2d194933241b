{{- /* Names, labels, images and the environment that all parts share. */ -}}

{{- define "localpool.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* At most 40 characters, so that each suffix fits into a label's 63. */ -}}
{{- define "localpool.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "localpool.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "localpool.driver" -}}csi.localpool.dev{{- end -}}

{{- /* The leases, by the rule of each program: ours as told, the sidecars' from the driver's name. */ -}}
{{- define "localpool.lease" -}}{{ include "localpool.fullname" . }}-controller{{- end -}}
{{- define "localpool.provisionerLease" -}}csi-localpool-dev{{- end -}}
{{- define "localpool.resizerLease" -}}external-resizer-csi-localpool-dev{{- end -}}

{{- /* What a selector may use: it never changes between versions. Takes (dict "root" $ "component" "node"). */ -}}
{{- define "localpool.selector" -}}
app.kubernetes.io/name: {{ include "localpool.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "localpool.labels" -}}
{{ include "localpool.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* Takes (dict "image" .Values.image "tag" default-tag). */ -}}
{{- define "localpool.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .tag .image.tag }}
{{- end -}}
{{- end -}}

{{- /* `image` and `imagePullPolicy` of a container. */ -}}
{{- define "localpool.containerImage" -}}
image: {{ include "localpool.image" . | quote }}
{{- with .image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- /* The apiserver's address, where the values name one: it goes before what the kubelet puts into each container. */ -}}
{{- define "localpool.apiServerEnv" -}}
{{- with .Values.kubernetesServiceHost -}}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
{{ end }}
{{- with .Values.kubernetesServicePort -}}
- name: KUBERNETES_SERVICE_PORT
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* An HTTP probe. Takes (dict "path" … "port" name "address" bound-address). Who listens on loopback only is asked
there, which the kubelet can do of pods with hostNetwork. */ -}}
{{- define "localpool.httpGet" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  {{- if eq .address "127.0.0.1" }}
  host: 127.0.0.1
  {{- end }}
{{- end -}}
