// At and Memcached on controller-runtime: what Fairlead is measured beside. Ends with its standard input.
package main

import (
	"flag"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	namespace := flag.String("namespace", "default", "the only namespace to watch")
	workers := flag.Int("workers", 10, "MaxConcurrentReconciles of each controller")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, atGroup.AddToScheme, memcachedGroup.AddToScheme} {
		must(add(scheme))
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
	})
	must(err)
	control := func(object, owned client.Object, reconciler reconcile.Reconciler) {
		options := controller.Options{MaxConcurrentReconciles: *workers}
		must(ctrl.NewControllerManagedBy(mgr).For(object).Owns(owned).WithOptions(options).Complete(reconciler))
	}
	control(&At{}, &corev1.Pod{}, &Ats{mgr.GetClient()})
	control(&Memcached{}, &appsv1.Deployment{}, &Memcacheds{mgr.GetClient()})
	must(mgr.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "fatal")
		os.Exit(1)
	}
}
