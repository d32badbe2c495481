package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = "cache.example.com/finalizer"

type MemcachedReconciler struct {
	client.Client
	image string
	write string
}

func (r *MemcachedReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	memcached := &Memcached{}
	if err := r.Get(ctx, req.NamespacedName, memcached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !memcached.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, memcached)
	}
	if controllerutil.AddFinalizer(memcached, finalizer) {
		if err := r.Update(ctx, memcached); err != nil {
			return ctrl.Result{}, err
		}
	}
	writeDeployment := r.update
	if r.write != "update" {
		writeDeployment = r.apply
	}
	if err := writeDeployment(ctx, memcached); err != nil {
		return ctrl.Result{}, err
	}
	available := metav1.Condition{Type: "Available", Status: metav1.ConditionTrue, Reason: "Reconciling", Message: "the Deployment is written"}
	meta.SetStatusCondition(&memcached.Status.Conditions, available)
	return ctrl.Result{}, r.Status().Update(ctx, memcached)
}

// What stays of an object: a record of who has cleaned up.
func (r *MemcachedReconciler) finalize(ctx context.Context, memcached *Memcached) error {
	if !controllerutil.ContainsFinalizer(memcached, finalizer) {
		return nil
	}
	cleaned := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: memcached.Namespace, Name: memcached.Name + "-cleaned"},
		Data:       map[string]string{"by": "memcached-operator"},
	}
	if err := r.Create(ctx, cleaned); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	controllerutil.RemoveFinalizer(memcached, finalizer)
	return r.Update(ctx, memcached)
}

func (r *MemcachedReconciler) update(ctx context.Context, memcached *Memcached) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: memcached.Namespace, Name: memcached.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"app": memcached.Name}
		spec := &deployment.Spec
		spec.Replicas = &memcached.Spec.Size
		spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		spec.Template.Labels = labels
		if len(spec.Template.Spec.Containers) == 0 {
			spec.Template.Spec.Containers = []corev1.Container{{Name: "memcached"}}
		}
		container := &spec.Template.Spec.Containers[0]
		container.Image = r.image
		container.Ports = nil
		if port := memcached.Spec.ContainerPort; port != 0 {
			container.Ports = []corev1.ContainerPort{{ContainerPort: port, Name: "memcached", Protocol: corev1.ProtocolTCP}}
		}
		return ctrl.SetControllerReference(memcached, deployment, r.Scheme())
	})
	return err
}

func (r *MemcachedReconciler) apply(ctx context.Context, memcached *Memcached) error {
	labels := map[string]string{"app": memcached.Name}
	container := corev1ac.Container().WithName("memcached").WithImage(r.image)
	if port := memcached.Spec.ContainerPort; port != 0 {
		container.WithPorts(corev1ac.ContainerPort().WithContainerPort(port).WithName("memcached"))
	}
	owner := metav1ac.OwnerReference().WithAPIVersion(groupVersion.String()).WithKind("Memcached").
		WithName(memcached.Name).WithUID(memcached.UID).WithController(true).WithBlockOwnerDeletion(true)
	deployment := appsv1ac.Deployment(memcached.Name, memcached.Namespace).WithOwnerReferences(owner).
		WithSpec(appsv1ac.DeploymentSpec().WithReplicas(memcached.Spec.Size).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).
				WithSpec(corev1ac.PodSpec().WithContainers(container))))
	if r.write == "apply" {
		return r.Apply(ctx, deployment, client.FieldOwner("memcached-operator"))
	}
	return r.Apply(ctx, deployment, client.FieldOwner("memcached-operator"), client.ForceOwnership)
}
