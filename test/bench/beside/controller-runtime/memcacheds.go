package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

type Memcacheds struct{ client.Client }

func (r *Memcacheds) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var memcached Memcached
	if err := r.Get(ctx, req.NamespacedName, &memcached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !memcached.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"memcached": memcached.Name}
		spec := &deployment.Spec
		spec.Replicas = &memcached.Spec.Size
		spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		spec.Template.Labels = labels
		if len(spec.Template.Spec.Containers) == 0 {
			spec.Template.Spec.Containers = []corev1.Container{{Name: "memcached"}}
		}
		spec.Template.Spec.Containers[0].Image = memcached.Spec.Image
		return ctrl.SetControllerReference(&memcached, deployment, r.Scheme())
	})
	return ctrl.Result{}, err
}
