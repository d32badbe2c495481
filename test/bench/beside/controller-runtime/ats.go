package main

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type Ats struct{ client.Client }

func (r *Ats) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var at At
	if err := r.Get(ctx, req.NamespacedName, &at); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if at.Status.Phase == Done || !at.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if wait := time.Until(at.Spec.Schedule.Time); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, r.report(ctx, &at, Pending)
	}
	pod, err := r.pod(ctx, &at)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return ctrl.Result{}, r.report(ctx, &at, Done)
	default:
		return ctrl.Result{}, r.report(ctx, &at, Running)
	}
}

func (r *Ats) report(ctx context.Context, at *At, phase Phase) error {
	if at.Status.Phase == phase {
		return nil
	}
	before := client.MergeFrom(at.DeepCopy())
	at.Status.Phase = phase
	return r.Status().Patch(ctx, at, before)
}

// The pod of the At, which is created unless it exists.
func (r *Ats) pod(ctx context.Context, at *At) (*corev1.Pod, error) {
	meta := metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name + "-pod", Labels: map[string]string{"at": at.Name}}
	pod := &corev1.Pod{ObjectMeta: meta}
	err := r.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	if client.IgnoreNotFound(err) != nil || err == nil {
		return pod, err
	}
	pod = &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "command", Image: "busybox", Command: strings.Fields(at.Spec.Command)}},
	}}
	if err := ctrl.SetControllerReference(at, pod, r.Scheme()); err != nil {
		return nil, err
	}
	return pod, client.IgnoreAlreadyExists(r.Create(ctx, pod))
}
