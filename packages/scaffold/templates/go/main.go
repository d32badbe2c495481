// Command my-operator answers Fairlead's requests over HTTP. PORT: where it listens (default 8080).
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const largestRequest = 32 << 20

func handle(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		answer(w, http.StatusOK, Object{})
		return
	}
	var request Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestRequest)).Decode(&request); err != nil {
		answer(w, http.StatusBadRequest, Object{"reason": "NoRequest", "message": err.Error()})
		return
	}
	w.Header().Set("fairlead-function", "website")
	w.Header().Set("ce-type", "dev.fairlead.outcome")
	answer(w, http.StatusOK, Reconcile(request))
}

func answer(w http.ResponseWriter, code int, body Object) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("listening on port %d\n", listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: http.HandlerFunc(handle), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.Serve(listener))
	os.Exit(1)
}
