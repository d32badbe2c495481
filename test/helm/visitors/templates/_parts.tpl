{{/* The labels of a tier: (list . "mysql") */}}
{{- define "visitors.labels" -}}
app: visitors
visitorssite_cr: {{ (index . 0).Release.Name }}
tier: {{ index . 1 }}
{{- end }}

{{/* A variable from the Secret: (list . "MYSQL_USER" "username") */}}
{{- define "visitors.secret" -}}
- name: {{ index . 1 }}
  valueFrom: { secretKeyRef: { name: {{ (index . 0).Release.Name }}-mysql-auth, key: {{ index . 2 }} } }
{{- end }}

{{/* How a page is reached: (list . 8000 .Values.service.backendNodePort) */}}
{{- define "visitors.reachable" -}}
type: {{ (index . 0).Values.service.type }}
ports:
  - port: {{ index . 1 }}
    targetPort: {{ index . 1 }}
    protocol: TCP
    nodePort: {{ if eq (index . 0).Values.service.type "NodePort" }}{{ index . 2 }}{{ end }}
{{- end }}

{{/* A probe of a page: (list "/" 3000) */}}
{{- define "visitors.probe" -}}
httpGet:
  path: {{ index . 0 }}
  port: {{ index . 1 }}
  httpHeaders: [{ name: Host, value: localhost }]
periodSeconds: 2
timeoutSeconds: 5
{{- end }}
