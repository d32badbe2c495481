package main

// Object is a Kubernetes object as it travels: JSON.
type Object = map[string]any

// Website has the fields that the function reads.
type Website struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		HTML     string `json:"html"`
		Replicas *int   `json:"replicas"`
	} `json:"spec"`
}

// Deployment has the fields that the function reads.
type Deployment struct {
	Status struct {
		ReadyReplicas int `json:"readyReplicas"`
	} `json:"status"`
}

// Request is described in docs/http-functions.md of Fairlead.
type Request struct {
	Object Website `json:"object"`
	Owned  struct {
		Deployments []Deployment `json:"Deployment.v1.apps"`
	} `json:"owned"`
}

// Reconcile returns what a Website should own. Given the same request, it gives the same answer.
func Reconcile(request Request) Object {
	name := request.Object.Metadata.Name
	wanted, ready := 1, 0
	if request.Object.Spec.Replicas != nil {
		wanted = *request.Object.Spec.Replicas
	}
	if len(request.Owned.Deployments) > 0 {
		ready = request.Owned.Deployments[0].Status.ReadyReplicas
	}
	labels := Object{"app": name}
	server := Object{
		"name": "httpd", "image": "busybox", "command": []string{"httpd", "-f", "-p", "8080", "-h", "/www"},
		"volumeMounts": []Object{{"name": "page", "mountPath": "/www"}},
	}
	pod := Object{
		"metadata": Object{"labels": labels},
		"spec": Object{
			"containers": []Object{server},
			"volumes":    []Object{{"name": "page", "configMap": Object{"name": name}}},
		},
	}
	status, reason := "False", "Starting"
	if ready == wanted {
		status, reason = "True", "Serving"
	}
	return Object{
		"apply": []Object{
			{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": Object{"name": name},
				"data": Object{"index.html": request.Object.Spec.HTML},
			},
			{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": Object{"name": name},
				"spec": Object{"replicas": wanted, "selector": Object{"matchLabels": labels}, "template": pod},
			},
		},
		"status":     Object{"ready": ready},
		"conditions": []Object{{"type": "Ready", "status": status, "reason": reason}},
	}
}
