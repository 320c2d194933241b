{{- /* What a LocalVolumeDiscovery runs, for the controller's --discovery-daemonset. Nothing of it is installed: the
controller makes it with the object's nodeSelector and tolerations, and takes it away with the object. */ -}}
{{- define "localpool.discovery" -}}
{{- $component := dict "root" . "component" "discovery" }}
{{- $node := .Values.node }}
metadata:
  name: {{ include "localpool.fullname" . }}-discovery
  labels:
    {{- include "localpool.labels" $component | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "localpool.selector" $component | nindent 6 }}
  # It has no probe: a pod that ends again and again is never taken for one that works.
  minReadySeconds: 5
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      # It only looks, so no node's work waits for it.
      maxUnavailable: 25%
  template:
    metadata:
      labels:
        {{- include "localpool.labels" $component | nindent 8 }}
    spec:
      serviceAccountName: {{ include "localpool.fullname" . }}-discovery
      priorityClassName: {{ .Values.discovery.priorityClassName }}
      # As for the agent: a disk may be mounted where only /proc/*/mountinfo tells.
      hostPID: true
      {{- if $node.hostNetwork }}
      hostNetwork: true
      {{- end }}
      dnsPolicy: Default
      enableServiceLinks: false
      terminationGracePeriodSeconds: 10
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      nodeSelector: {kubernetes.io/os: linux}
      containers:
        - name: localpool
          {{- include "localpool.containerImage" (dict "image" .Values.image "tag" .Chart.AppVersion) | nindent 10 }}
          command: [localpool, discovery]
          args:
            - --state-dir={{ $node.stateDir }}
            - --resync={{ .Values.discovery.resync }}
            - --log-format={{ .Values.log.format }}
          env:
            - name: LOCALPOOL_NODE_NAME
              valueFrom:
                fieldRef: {fieldPath: spec.nodeName}
            - name: LOCALPOOL_LOG
              value: {{ .Values.log.level | quote }}
            {{- with include "localpool.apiServerEnv" . }}
            {{- . | nindent 12 }}
            {{- end }}
          # Where no agent runs it reads device nodes that appear later, which only a privileged container can; it
          # writes nothing, and can write to nothing of the host's that is mounted here.
          securityContext:
            privileged: true
            runAsUser: 0
            runAsGroup: 0
            readOnlyRootFilesystem: true
          {{- with .Values.discovery.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          terminationMessagePolicy: FallbackToLogsOnError
          volumeMounts:
            - {name: dev, mountPath: /dev, readOnly: true}
            - {name: state, mountPath: {{ $node.stateDir | quote }}, readOnly: true}
            {{- with include "localpool.provisionerMounts" . | trim }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- if $node.udev }}
            - {name: udev, mountPath: /run/udev, readOnly: true}
            {{- end }}
      volumes:
        - name: dev
          hostPath: {path: /dev, type: Directory}
        # The agent's socket, where an agent runs.
        - name: state
          hostPath: {path: {{ $node.stateDir | quote }}, type: DirectoryOrCreate}
        # Other provisioners' links to disks.
        {{- with include "localpool.provisionerVolumes" . | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- if $node.udev }}
        - name: udev
          hostPath: {path: /run/udev, type: DirectoryOrCreate}
        {{- end }}
{{- end -}}

{{- /* As an argument: Kubernetes would take "$(X)" in it for the value of a variable. */ -}}
{{- define "localpool.discoveryFlag" -}}
{{- printf "--discovery-daemonset=%s" (include "localpool.discovery" . | fromYaml | toJson) | replace "$(" "$$(" -}}
{{- end -}}
