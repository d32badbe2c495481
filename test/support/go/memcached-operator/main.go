// A Memcached operator as kubebuilder lays one out, on the defaults of controller-runtime: what users come from, and leave to.
// Ends with its standard input.
package main

import (
	"flag"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	image := flag.String("image", "memcached:1.6", "the image of its pods")
	write := flag.String("write", "update", "how it writes Deployments: update, apply, or force (apply with force)")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(addToScheme(scheme))
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "86f835c3.example.com",
		LeaderElectionNamespace: "default",
	})
	utilruntime.Must(err)
	reconciler := &MemcachedReconciler{mgr.GetClient(), *image, *write}
	utilruntime.Must(ctrl.NewControllerManagedBy(mgr).For(&Memcached{}).Owns(&appsv1.Deployment{}).Complete(reconciler))
	utilruntime.Must(mgr.Start(ctrl.SetupSignalHandler()))
}
