#!/usr/bin/env bash
# A hook of shell-operator: a Website has a ConfigMap with its page, below the header of a theme.
set -euo pipefail

if [[ ${1:-} == --config ]]; then
  cat <<EOF
configVersion: v1
kubernetes:
- name: websites
  apiVersion: example.com/v1
  kind: Website
  executeHookOnEvent: [Added, Modified]
  executeHookOnSynchronization: false
  includeSnapshotsFrom: [themes]
- name: themes
  apiVersion: v1
  kind: ConfigMap
  labelSelector: {matchLabels: {app: theme}}
  executeHookOnEvent: []
  jqFilter: .data.header
EOF
  exit
fi

echo "deciding about $(jq -r '.[0].object.metadata.name' "$BINDING_CONTEXT_PATH")"
jq '
  .[0]
  | (.snapshots.themes[0].filterResult // "") as $header
  | .object as {$apiVersion, $kind, metadata: {$name, $namespace}, spec: {$html}}
  | {
      operation: "CreateOrUpdate",
      object: {apiVersion: "v1", kind: "ConfigMap", metadata: {$name, $namespace}, data: {"index.html": ($header + $html)}}
    },
    {
      operation: "MergePatch", $apiVersion, $kind, $namespace, $name, subresource: "/status",
      mergePatch: {status: {ready: 1}}
    }' "$BINDING_CONTEXT_PATH" >>"$KUBERNETES_PATCH_PATH"
