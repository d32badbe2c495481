// At and Memcached on controller-runtime: what Fairlead is measured beside. Ends with its standard input.
package main

import (
	"flag"
	"io"
	"os"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What controller-runtime has by default.
const renewDeadline = 10 * time.Second

func main() {
	namespace := flag.String("namespace", "", "the only namespace to watch; empty: all")
	workers := flag.Int("workers", 10, "MaxConcurrentReconciles of each controller")
	atKind := flag.String("at", "At", "the kind of Ats; empty: none")
	memcachedKind := flag.String("memcached", "Memcached", "the kind of Memcacheds; empty: none")
	lease := flag.String("lease", "", "the Lease in the namespace default that the only active process holds; empty: no election")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()

	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	addKinds(scheme, *atKind, *memcachedKind)
	config := ctrl.GetConfigOrDie()
	options := ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}}
	if *namespace != "" {
		options.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}}
	}
	if *lease != "" {
		// The same lock as by default, but that its holder is found by its pid.
		lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", *lease,
			resourcelock.ResourceLockConfig{Identity: strconv.Itoa(os.Getpid())}, config, renewDeadline)
		must(err)
		options.LeaderElection = true
		options.LeaderElectionResourceLockInterface = lock
	}
	mgr, err := ctrl.NewManager(config, options)
	must(err)
	control := func(object, owned client.Object, reconciler reconcile.Reconciler) {
		options := controller.Options{MaxConcurrentReconciles: *workers}
		must(ctrl.NewControllerManagedBy(mgr).For(object).Owns(owned).WithOptions(options).Complete(reconciler))
	}
	if *atKind != "" {
		control(&At{}, &corev1.Pod{}, &Ats{mgr.GetClient()})
	}
	if *memcachedKind != "" {
		control(&Memcached{}, &appsv1.Deployment{}, &Memcacheds{mgr.GetClient()})
	}
	must(mgr.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "fatal")
		os.Exit(1)
	}
}
