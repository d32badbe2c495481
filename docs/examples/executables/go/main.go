// Command website decides what a Website should own: each JSON value on stdin is a request, each line of stdout its
// answer, and stderr is the log.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strings"
)

type object = map[string]any

type request struct {
	ID     any `json:"id"`
	Object struct {
		Metadata struct{ Name string }
		Spec     struct {
			HTML     string
			Replicas *int
		}
	}
	Owned struct {
		Deployments []struct{ Status struct{ ReadyReplicas int } } `json:"Deployment.v1.apps"`
	}
}

func reconcile(asked request) object {
	name, spec := asked.Object.Metadata.Name, asked.Object.Spec
	if strings.Contains(spec.HTML, "<script") {
		return object{"error": object{
			"reason": "ScriptInPage", "message": "spec.html has a script: take it out", "terminal": true,
		}}
	}
	log.Printf("deciding about %s", name)
	wanted, ready := 1, 0
	if spec.Replicas != nil {
		wanted = *spec.Replicas
	}
	if len(asked.Owned.Deployments) > 0 {
		ready = asked.Owned.Deployments[0].Status.ReadyReplicas
	}
	labels := object{"app": name}
	server := object{
		"name": "httpd", "image": "busybox", "command": []string{"httpd", "-f", "-p", "8080", "-h", "/www"},
		"volumeMounts": []object{{"name": "page", "mountPath": "/www"}},
	}
	pod := object{
		"containers": []object{server},
		"volumes":    []object{{"name": "page", "configMap": object{"name": name}}},
	}
	status, reason := "False", "Starting"
	if ready == wanted {
		status, reason = "True", "Serving"
	}
	return object{
		"apply": []object{
			{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name}, "data": object{"index.html": spec.HTML}},
			{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": name},
				"spec": object{
					"replicas": wanted,
					"selector": object{"matchLabels": labels},
					"template": object{"metadata": object{"labels": labels}, "spec": pod},
				},
			},
		},
		"status":     object{"ready": ready},
		"conditions": []object{{"type": "Ready", "status": status, "reason": reason}},
	}
}

func main() {
	requests, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked request
		if err := requests.Decode(&asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		answer := reconcile(asked)
		answer["id"] = asked.ID
		if err := answers.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}
