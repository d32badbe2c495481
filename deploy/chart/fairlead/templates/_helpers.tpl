{{- define "fairlead.image" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}

{{/* "true", "false" or "move". A release of an earlier chart has no such value if it is upgraded by --reuse-values. */}}
{{- define "fairlead.small" -}}
{{ .Values.small | default false }}
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

{{/* 90 % of a quantity of memory, in the unit of Go. Helm reads a limit that is a plain number as a float. */}}
{{- define "fairlead.goMemoryLimit" -}}
{{- $number := regexFind "^[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?" (toString .) }}
{{- $unit := trimPrefix $number (toString .) }}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- if or (eq $number "") (not (hasKey $units $unit)) }}
{{- fail (printf "nats.resources.limits.memory is %q: write a quantity such as 1Gi or 512Mi" (toString .)) }}
{{- end }}
{{- divf (mulf (float64 $number) (get $units $unit) 0.9) 1048576 | floor | int64 }}MiB
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
    {{- .Values.nats.users | default (.Files.Get "files/users.conf") | nindent 4 }}
  cluster.conf: |
    {{- .Files.Get (gt (int .Values.nats.replicas) 1 | ternary "files/ha-cluster.conf" "files/cluster.conf") | nindent 4 }}
{{- end }}

{{- define "fairlead.smallConfig" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: fairlead-small
  namespace: fairlead-system
  labels:
    app.kubernetes.io/part-of: fairlead
data:
  nats.conf: |
    {{- .Files.Get "files/small.conf" | replace "max_file: 9GiB" (printf "max_file: %s" .Values.nats.storage.maxFile) | nindent 4 }}
{{- end }}
