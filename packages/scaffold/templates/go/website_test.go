package main

import "testing"

func hello(replicas int) Request {
	var request Request
	request.Object.Metadata.Name = "hello"
	request.Object.Spec.HTML = "hello"
	request.Object.Spec.Replicas = &replicas
	return request
}

func conditionOf(outcome Object) any {
	return outcome["conditions"].([]Object)[0]["status"]
}

func TestStartsAsNotReady(t *testing.T) {
	if got := conditionOf(Reconcile(hello(2))); got != "False" {
		t.Fatalf("Ready is %v", got)
	}
}

func TestIsReadyWhenAllReplicasAre(t *testing.T) {
	request := hello(2)
	request.Owned.Deployments = make([]Deployment, 1)
	request.Owned.Deployments[0].Status.ReadyReplicas = 2
	if got := conditionOf(Reconcile(request)); got != "True" {
		t.Fatalf("Ready is %v", got)
	}
}

func TestServesThePageThatTheSpecHas(t *testing.T) {
	config := Reconcile(hello(1))["apply"].([]Object)[0]
	if got := config["data"].(Object)["index.html"]; got != "hello" {
		t.Fatalf("the page is %v", got)
	}
}
