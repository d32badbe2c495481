// The webhook of Site on controller-runtime: what `fairlead admit` is measured beside. Ends with its standard input.
package main

import (
	"flag"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func main() {
	port := flag.Int("port", 0, "the port of the webhook on 127.0.0.1")
	certDir := flag.String("cert-dir", "", "the folder with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()

	scheme := runtime.NewScheme()
	addKinds(scheme)
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:        scheme,
		Metrics:       server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certDir}),
	})
	must(err)
	must(ctrl.NewWebhookManagedBy(mgr, &Site{}).WithValidator(Validator{}).Complete())
	must(mgr.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "fatal")
		os.Exit(1)
	}
}
