"""The function of Websites: what each of them should own. Given the same request, it gives the same answer."""


def reconcile(request):
    """Returns the outcome for a request as docs/http-functions.md of Fairlead describes it."""
    website = request["object"]
    name = website["metadata"]["name"]
    labels = {"app": name}
    deployments = request["owned"].get("Deployment.v1.apps", [])
    ready = deployments[0].get("status", {}).get("readyReplicas", 0) if deployments else 0
    wanted = website["spec"].get("replicas", 1)
    server = {
        "name": "httpd",
        "image": "busybox",
        "command": ["httpd", "-f", "-p", "8080", "-h", "/www"],
        "volumeMounts": [{"name": "page", "mountPath": "/www"}],
    }
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [server], "volumes": [{"name": "page", "configMap": {"name": name}}]},
    }
    return {
        "apply": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name},
                "data": {"index.html": website["spec"]["html"]},
            },
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name},
                "spec": {"replicas": wanted, "selector": {"matchLabels": labels}, "template": pod},
            },
        ],
        "status": {"ready": ready},
        "conditions": [
            {
                "type": "Ready",
                "status": "True" if ready == wanted else "False",
                "reason": "Serving" if ready == wanted else "Starting",
            }
        ],
    }
