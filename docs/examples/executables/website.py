#!/usr/bin/env python3
"""What a Website should own: each line of stdin is a request, each line of stdout its answer, and stderr is the log."""

import json
import sys


def reconcile(request):
    name, spec = request["object"]["metadata"]["name"], request["object"]["spec"]
    if "<script" in spec["html"]:
        message = "spec.html has a script: take it out"
        return {"error": {"reason": "ScriptInPage", "message": message, "terminal": True}}
    print(f"deciding about {name}", file=sys.stderr)
    wanted = spec.get("replicas", 1)
    deployments = request["owned"].get("Deployment.v1.apps", [])
    ready = deployments[0].get("status", {}).get("readyReplicas", 0) if deployments else 0
    labels = {"app": name}
    server = {
        "name": "httpd",
        "image": "busybox",
        "command": ["httpd", "-f", "-p", "8080", "-h", "/www"],
        "volumeMounts": [{"name": "page", "mountPath": "/www"}],
    }
    pod = {"containers": [server], "volumes": [{"name": "page", "configMap": {"name": name}}]}
    page = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"index.html": spec["html"]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": wanted,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    is_ready = ready == wanted
    condition = {"type": "Ready", "status": str(is_ready), "reason": "Serving" if is_ready else "Starting"}
    return {"apply": [page, deployment], "status": {"ready": ready}, "conditions": [condition]}


for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked.get("id"), **reconcile(asked)}), flush=True)
