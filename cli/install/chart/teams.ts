import type { Templated } from './templated.ts'

/** Returns the variable with the rates of teams, which every dispatcher keeps. */
export const ratesOf = (template: Templated): string =>
  template.items(
    '{{- $rates := dict }}',
    '{{- range .Values.teams }}',
    '{{- if .runRate }}',
    '{{- $_ := set $rates .name (mergeOverwrite (dict "reconcilers" .reconcilers) .runRate) }}',
    '{{- end }}',
    '{{- end }}',
    '{{- with $rates }}',
    '- name: FAIRLEAD_RUN_RATES',
    '  value: {{ toJson . | quote }}',
    '{{- end }}',
  )

/** Adds the dispatchers of teams. Each has the values of `dispatcher`, except functions, under those of its team. */
export const withTeams = (dispatcher: string): string => `\
{{- define "fairlead.dispatchers" }}
${dispatcher.trimEnd()}
{{- end }}
{{- include "fairlead.dispatchers" . }}
{{- if not .Values.shard }}
{{- range .Values.teams }}
{{- if .dispatcher }}
{{- $values := deepCopy $.Values }}
{{- $_ := set $values "team" .name }}
{{- $_ := set $values "dispatcher" (mergeOverwrite $values.dispatcher (dict "functions" list "builtin" list "adapters" list) .dispatcher) }}
{{- with .image }}
{{- $_ := set $values "image" (mergeOverwrite (dict "tag" "latest" "digest" "" "pullPolicy" $.Values.image.pullPolicy) .) }}
{{- end }}
---
{{- include "fairlead.dispatchers" (dict "Values" $values "Release" $.Release) }}
{{- end }}
{{- end }}
{{- end }}
`
