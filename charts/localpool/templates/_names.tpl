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

{{- /* The leases, by the rule of each program: ours as configured, the sidecars' from the driver's name. */ -}}
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
app.kubernetes.io/version: {{ default .root.Chart.AppVersion .root.Values.image.tag | trunc 63 | trimSuffix "-" | trimSuffix "." | quote }}
{{- /* The same whatever the names are: `kubectl localpool` finds the pods by it. */}}
localpool.dev/component: {{ .component }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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

{{- /* The annotations of a ServiceAccount, where the values have some. Takes the values of its part. */ -}}
{{- define "localpool.serviceAccountAnnotations" -}}
{{- with .serviceAccount.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The securityContext of a pod that needs no privilege. OpenShift gives each namespace its user ids, and refuses
others. */ -}}
{{- define "localpool.podSecurityContext" -}}
{{- $context := .Values.podSecurityContext }}
{{- if .Values.openshift.enabled }}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}
{{- end }}
{{- toYaml $context }}
{{- end -}}

{{- /* Directories of the host below which the agent mounts filesystems for others, as a JSON list. */ -}}
{{- define "localpool.hostMountDirs" -}}
{{- $dirs := .Values.node.hostMountDirs | default list -}}
{{- if .Values.controller.nodeDiskSetup.localRaidDisks -}}
{{- $dirs = append $dirs "/mnt/raid-disks" -}}
{{- end -}}
{{- uniq $dirs | toJson -}}
{{- end -}}

{{- /* Directories of the host where other provisioners have links and mounts, as volumeMounts. */ -}}
{{- define "localpool.provisionerMounts" -}}
{{- $own := include "localpool.hostMountDirs" . | fromJsonArray }}
{{- range $number, $path := .Values.node.provisionerDirs }}
{{- if not (has $path $own) }}
- {name: {{ printf "provisioner-%d" $number }}, mountPath: {{ $path | quote }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}
{{- end -}}

{{- /* And as volumes of the pod. */ -}}
{{- define "localpool.provisionerVolumes" -}}
{{- $own := include "localpool.hostMountDirs" . | fromJsonArray }}
{{- range $number, $path := .Values.node.provisionerDirs }}
{{- if not (has $path $own) }}
- name: {{ printf "provisioner-%d" $number }}
  hostPath: {path: {{ $path | quote }}, type: DirectoryOrCreate}
{{- end }}
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
