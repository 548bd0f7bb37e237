{{- /*
The template of a pod. `.pod` beside the chart's own values: "whole" serves alone; with several nodes "leader" serves,
and "worker" has ranks alone.
*/ -}}
{{- define "sluice.pod" -}}
{{- $secret := include "sluice.secret" . -}}
{{- $scheme := include "sluice.scheme" . -}}
{{- $serves := ne .pod "worker" -}}
{{- $spans := ne .pod "whole" -}}
{{- $stores := and $serves .Values.data.persistent -}}
{{- $encrypts := and $serves .Values.tls.secret -}}
{{- $asks := and $serves .Values.tls.clientCaSecret -}}
metadata:
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
    {{- if $spans }}
    app.kubernetes.io/component: {{ ternary "server" "ranks" $serves }}
    {{- end }}
  annotations:
    {{- if or (and $secret (not .Values.existingSecret)) (and $spans .Values.nodes.key) }}
    checksum/secret: {{ include (print $.Template.BasePath "/secret.yaml") . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with .Values.serviceAccount.name }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ add .Values.drainTimeout 15 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: sluice
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [{{ .Values.model | quote }}]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      env:
        - name: SLUICE_ARG_HOST
          value: "0.0.0.0"
        - name: SLUICE_ARG_PORT
          value: "30000"
        - name: SLUICE_ARG_DRAIN_TIMEOUT
          value: {{ .Values.drainTimeout | quote }}
        {{- if $spans }}
        - name: SLUICE_ARG_DIST_KEY_FILE
          value: /etc/sluice/nodes/key
        - name: SLUICE_ARG_DIST_TIMEOUT
          value: {{ .Values.startTimeout | quote }}
        {{- if $serves }}
        # A pod's own hosts file has its name, also before the DNS of the cluster does.
        - name: POD_NAME
          valueFrom:
            fieldRef: {fieldPath: metadata.name}
        - name: SLUICE_ARG_DIST_INIT_ADDR
          value: $(POD_NAME):20000
        {{- end }}
        {{- end }}
        {{- if $stores }}
        - name: SLUICE_ARG_RESPONSE_STORE
          value: /data/responses.db
        - name: SLUICE_ARG_PAGE_STORE
          value: /data/chats.db
        {{- end }}
        {{- if $encrypts }}
        - name: SLUICE_ARG_SSL_CERTFILE
          value: /etc/sluice/tls/tls.crt
        - name: SLUICE_ARG_SSL_KEYFILE
          value: /etc/sluice/tls/tls.key
        - name: SLUICE_ARG_ENABLE_SSL_REFRESH
          value: {{ .Values.tls.refresh | quote }}
        {{- end }}
        {{- if $asks }}
        # The kubelet shows no certificate to its probes, so none can be required.
        - name: SLUICE_ARG_SSL_CA_CERTS
          value: /etc/sluice/tls-clients/ca.crt
        - name: SLUICE_ARG_SSL_CERT_REQS
          value: "1"
        {{- end }}
        {{- with .Values.tracesEndpoint }}
        - name: SLUICE_ARG_OTLP_TRACES_ENDPOINT
          value: {{ . | quote }}
        {{- end }}
        {{- range $name, $value := .Values.options }}
        - name: SLUICE_ARG_{{ $name | upper | replace "-" "_" }}
          {{- if kindIs "slice" $value }}
          value: {{ join "," $value | quote }}
          {{- else if kindIs "float64" $value }}
          {{- /* Helm reads whole numbers as floats. */}}
          value: {{ if eq $value (floor $value) }}{{ $value | int64 | quote }}{{ else }}{{ $value | quote }}{{ end }}
          {{- else }}
          value: {{ $value | quote }}
          {{- end }}
        {{- end }}
        {{- if $secret }}
        {{- if $serves }}
        - name: SLUICE_ARG_API_KEY
          valueFrom:
            secretKeyRef: {name: {{ $secret }}, key: api-key, optional: true}
        - name: SLUICE_ARG_ADMIN_API_KEY
          valueFrom:
            secretKeyRef: {name: {{ $secret }}, key: admin-api-key, optional: true}
        {{- end }}
        - name: HF_TOKEN
          valueFrom:
            secretKeyRef: {name: {{ $secret }}, key: hf-token, optional: true}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if $serves }}
      ports:
        - name: {{ $scheme }}
          containerPort: 30000
      startupProbe:
        httpGet: {path: /ready, port: {{ $scheme }}, scheme: {{ upper $scheme }}}
        periodSeconds: 5
        failureThreshold: {{ div (add .Values.startTimeout 4) 5 }}
      readinessProbe:
        httpGet: {path: /ready, port: {{ $scheme }}, scheme: {{ upper $scheme }}}
        periodSeconds: 5
      livenessProbe:
        httpGet: {path: /health, port: {{ $scheme }}, scheme: {{ upper $scheme }}}
        periodSeconds: 10
        failureThreshold: 6
      {{- end }}
      resources:
        {{- $resources := deepCopy .Values.resources }}
        {{- if .Values.gpus }}
        {{- $limits := merge (dict "nvidia.com/gpu" .Values.gpus) (default dict $resources.limits) }}
        {{- $_ := set $resources "limits" $limits }}
        {{- end }}
        {{- toYaml $resources | nindent 8 }}
      volumeMounts:
        - {name: models, mountPath: /models}
        {{- if $stores }}
        - {name: data, mountPath: /data}
        {{- end }}
        {{- if $encrypts }}
        - {name: tls, mountPath: /etc/sluice/tls, readOnly: true}
        {{- end }}
        {{- if $asks }}
        - {name: tls-clients, mountPath: /etc/sluice/tls-clients, readOnly: true}
        {{- end }}
        {{- if $spans }}
        - {name: nodes, mountPath: /etc/sluice/nodes, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        - {name: shm, mountPath: /dev/shm}
  volumes:
    - name: models
      {{- if or .Values.models.persistent .Values.models.existingClaim }}
      persistentVolumeClaim:
        claimName: {{ .Values.models.existingClaim | default (printf "%s-models" (include "sluice.name" .)) }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- if $stores }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ .Values.data.existingClaim | default (printf "%s-data" (include "sluice.name" .)) }}
    {{- end }}
    {{- if $encrypts }}
    # Readable to the pod's group alone.
    - name: tls
      secret: {secretName: {{ .Values.tls.secret }}, defaultMode: 0440}
    {{- end }}
    {{- if $asks }}
    - name: tls-clients
      secret: {secretName: {{ .Values.tls.clientCaSecret }}, defaultMode: 0440}
    {{- end }}
    {{- if $spans }}
    - name: nodes
      secret:
        secretName: {{ include "sluice.nodesSecret" . }}
        defaultMode: 0440
        items: [{key: dist-key, path: key}]
    {{- end }}
    - name: tmp
      emptyDir: {}
    # Ranks of one server share memory (--tp-size).
    - name: shm
      emptyDir: {medium: Memory}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
