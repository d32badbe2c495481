#!/usr/bin/env bash
# What a Website should own: one request on stdin, one answer on stdout, and logs on stderr.
set -euo pipefail
request=$(cat)

if jq -e '.object.spec.html | contains("<script")' <<<"$request" >/dev/null; then
  jq -n '{error: {reason: "ScriptInPage", message: "spec.html has a script: take it out", terminal: true}}'
  exit
fi
echo "deciding about $(jq -r .object.metadata.name <<<"$request")" >&2

jq '
  .object as {metadata: {$name}, $spec}
  | ($spec.replicas // 1) as $wanted
  | (.owned["Deployment.v1.apps"][0].status.readyReplicas // 0) as $ready
  | {app: $name} as $labels
  | {
      apply: [
        {apiVersion: "v1", kind: "ConfigMap", metadata: {$name}, data: {"index.html": $spec.html}},
        {
          apiVersion: "apps/v1", kind: "Deployment", metadata: {$name},
          spec: {
            replicas: $wanted,
            selector: {matchLabels: $labels},
            template: {
              metadata: {$labels},
              spec: {
                containers: [{
                  name: "httpd", image: "busybox", command: ["httpd", "-f", "-p", "8080", "-h", "/www"],
                  volumeMounts: [{name: "page", mountPath: "/www"}]
                }],
                volumes: [{name: "page", configMap: {$name}}]
              }
            }
          }
        }
      ],
      status: {$ready},
      conditions: [
        {type: "Ready"} + if $ready == $wanted then {status: "True", reason: "Serving"} else {status: "False", reason: "Starting"} end
      ]
    }' <<<"$request"
