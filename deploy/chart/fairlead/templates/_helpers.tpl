{{- define "fairlead.image" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}

{{- define "fairlead.natsUrl" -}}
{{- if .Values.nats.enabled }}tls://fairlead-nats.{{ .Release.Namespace }}.svc:4222
{{- else }}{{ required "nats.url is empty: nats.enabled is false, so say where NATS is, e.g. tls://nats.example.com:4222" .Values.nats.url }}
{{- end }}
{{- end }}

{{/* The ports of nats.url, which may name several servers. 4222 is the default of NATS. */}}
{{- define "fairlead.natsPorts" -}}
{{- $ports := list }}
{{- range splitList "," .Values.nats.url }}
{{- $ports = append $ports (regexFind ":[0-9]+/?$" (trim .) | trimAll ":/" | default "4222" | int) }}
{{- end }}
{{- range uniq $ports }}
- protocol: TCP
  port: {{ . }}
{{- end }}
{{- end }}

{{- define "fairlead.natsConfig" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: fairlead-nats
  namespace: fairlead-system
  labels:
    app.kubernetes.io/part-of: fairlead
data:
  nats.conf: |
    {{- .Files.Get "files/nats.conf" | replace "max_file: 9GiB" (printf "max_file: %s" .Values.nats.storage.maxFile) | nindent 4 }}
  users.conf: |
    {{- .Files.Get "files/users.conf" | nindent 4 }}
  cluster.conf: |
    {{- .Files.Get (gt (int .Values.nats.replicas) 1 | ternary "files/ha-cluster.conf" "files/cluster.conf") | nindent 4 }}
{{- end }}
