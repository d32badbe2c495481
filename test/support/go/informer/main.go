// The informer of client-go, doing nothing: what the bridge is measured against. Reads "report" from standard input and
// answers each time with one line of JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const sentAnnotation = "bench/sent"

func main() {
	began := time.Now()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	must(err)

	var lock sync.Mutex
	var delays []float64
	seen := func(object any) {
		if sent, err := strconv.ParseFloat(object.(*corev1.ConfigMap).Annotations[sentAnnotation], 64); err == nil {
			lock.Lock()
			delays = append(delays, float64(time.Now().UnixMicro())/1000-sent)
			lock.Unlock()
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) {},
		UpdateFunc: func(_, object any) { seen(object) },
	})
	must(err)
	stop := make(chan struct{})
	factory.Start(stop)
	cache.WaitForCacheSync(stop, informer.HasSynced)
	fmt.Printf("{\"syncedMs\":%d,\"objects\":%d}\n", time.Since(began).Milliseconds(), len(informer.GetStore().ListKeys()))

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		lock.Lock()
		sort.Float64s(delays)
		must(json.NewEncoder(os.Stdout).Encode(map[string]any{"delays": delays}))
		delays = []float64{}
		lock.Unlock()
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
