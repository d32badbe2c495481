package fairlead

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	largestRequest = 32 << 20
	grace          = 20 * time.Second
)

// Main serves over HTTP on PORT, if it is set; otherwise it answers the requests on standard input, as
// `fairlead serve --exec` asks. It ends the process with 1 if this fails.
func (f Function[Spec, Status]) Main() {
	port, isServed := os.LookupEnv("PORT")
	answers := os.Stdout
	serve := func() error { return f.AnswerLines(os.Stdin, answers) }
	// What the function prints is no answer.
	os.Stdout = os.Stderr
	if isServed {
		serve = func() error { return f.serve(port) }
	}
	if err := serve(); err != nil {
		log.Fatal(err)
	}
}

// AnswerLines answers each JSON value with one line, with --lines and without.
func (f Function[Spec, Status]) AnswerLines(requests io.Reader, answers io.Writer) error {
	decoder := json.NewDecoder(requests)
	for {
		var asked json.RawMessage
		if err := decoder.Decode(&asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var call struct {
			ID json.RawMessage `json:"id,omitempty"`
		}
		if err := json.Unmarshal(asked, &call); err != nil {
			return err
		}
		var line []byte
		answer, err := f.Answer(context.Background(), asked)
		if err == nil {
			line, err = merged(answer, call)
		}
		if err != nil {
			log.Print(err)
			line, err = merged(Object{"error": reported(err)}, call)
		}
		if err == nil {
			_, err = answers.Write(append(line, '\n'))
		}
		if err != nil {
			return err
		}
	}
}

// merged returns the fields of both values in one object.
func merged(values ...any) ([]byte, error) {
	all := map[string]json.RawMessage{}
	for _, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &all); err != nil {
			return nil, err
		}
	}
	return json.Marshal(all)
}

func reported(err error) Object {
	var terminal *TerminalError
	var retry *RetryAfterError
	switch {
	case errors.As(err, &terminal):
		return Object{"message": err.Error(), "reason": terminal.reason(), "terminal": true}
	case errors.As(err, &retry):
		return Object{"message": err.Error(), "reason": retry.reason(), "retryAfterSeconds": retry.seconds()}
	}
	return Object{"message": err.Error()}
}

func (f Function[Spec, Status]) serve(port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	log.Printf("serving %s on port %d", f.Name, listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		<-stopped.Done()
		limited, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		ended <- server.Shutdown(limited)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

type failure struct {
	code            int
	Reason, Message string
	after           float64
}

var (
	askedType = regexp.MustCompile(`^dev\.fairlead\.(reconcile|read|perform)$`)
	source    = regexp.MustCompile(`/reconcilers/([^/]+)$`)
	answers   = map[string]string{"reconcile": "outcome", "read": "external", "perform": "result"}
)

// ServeHTTP answers the requests of dispatchers, and probes.
func (f Function[Spec, Status]) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	response.Header().Set("fairlead-function", f.Name)
	switch path := request.URL.Path; {
	case path == "/health/liveness" || path == "/health/readiness":
		fmt.Fprintln(response, "ready")
	case path != "/":
		http.Error(response, "there is nothing at "+path+": POST to /", http.StatusNotFound)
	case request.Method != http.MethodPost:
		response.Header().Set("allow", "POST")
		http.Error(response, request.Method+" is not for a function: POST", http.StatusMethodNotAllowed)
	default:
		f.answer(response, request)
	}
}

func (f Function[Spec, Status]) answer(response http.ResponseWriter, request *http.Request) {
	ask, data, wrong := f.asked(response, request)
	if wrong != nil {
		wrong.write(response)
		return
	}
	answer, err := f.Answer(request.Context(), data)
	var body []byte
	if err == nil {
		body, err = json.Marshal(answer)
	}
	if err != nil {
		log.Print(err)
		failureOf(err).write(response)
		return
	}
	if string(body) == "{}" {
		response.WriteHeader(http.StatusNoContent)
		return
	}
	header := response.Header()
	header.Set("content-type", "application/json")
	header.Set("ce-specversion", "1.0")
	header.Set("ce-id", rand.Text())
	header.Set("ce-source", "urn:fairlead:function:"+f.Name)
	header.Set("ce-type", "dev.fairlead."+answers[ask])
	_, _ = response.Write(body)
}

// asked returns what is asked, and the data of the event, of both content modes.
func (f Function[Spec, Status]) asked(w http.ResponseWriter, r *http.Request) (string, json.RawMessage, *failure) {
	body, err := []byte(nil), error(nil)
	if r.ContentLength <= largestRequest {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, largestRequest))
	}
	if err != nil || r.ContentLength > largestRequest {
		message := fmt.Sprintf("the request is larger than %d bytes", largestRequest)
		return "", nil, &failure{code: http.StatusRequestEntityTooLarge, Reason: "RequestTooLarge", Message: message}
	}
	event := struct {
		Type, Source string
		Data         json.RawMessage
	}{r.Header.Get("ce-type"), r.Header.Get("ce-source"), body}
	if strings.HasPrefix(r.Header.Get("content-type"), "application/cloudevents+json") {
		err = json.Unmarshal(body, &event)
	}
	ask := askedType.FindStringSubmatch(event.Type)
	if err != nil || event.Type == "" || !json.Valid(event.Data) {
		message := "send a CloudEvent of type dev.fairlead.reconcile, with JSON"
		return "", nil, &failure{code: http.StatusBadRequest, Reason: "InvalidEvent", Message: message}
	}
	if ask == nil {
		message := fmt.Sprintf("an event of type %s is nothing to reconcile: send dev.fairlead.reconcile", event.Type)
		return "", nil, &failure{code: http.StatusUnprocessableEntity, Reason: "UnsupportedEvent", Message: message}
	}
	if named := source.FindStringSubmatch(event.Source); named != nil && named[1] != f.Name {
		message := fmt.Sprintf("this is %s, not %[2]s: give the URL of %[2]s in spec.invoke.http.url", f.Name, named[1])
		return "", nil, &failure{code: http.StatusMisdirectedRequest, Reason: "OtherFunction", Message: message}
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(event.Data, &fields) != nil || fields["object"] == nil || fields["now"] == nil {
		message := "the data of a run has `object` (null when it is gone) and `now`"
		return "", nil, &failure{code: http.StatusUnprocessableEntity, Reason: "UnsupportedEvent", Message: message}
	}
	return ask[1], event.Data, nil
}

func failureOf(err error) *failure {
	var terminal *TerminalError
	var retry *RetryAfterError
	switch {
	case errors.As(err, &terminal):
		return &failure{code: http.StatusUnprocessableEntity, Reason: terminal.reason(), Message: err.Error()}
	case errors.As(err, &retry):
		return &failure{code: http.StatusTooManyRequests, Reason: retry.reason(), Message: err.Error(), after: retry.seconds()}
	case errors.Is(err, ErrConflict):
		return &failure{code: http.StatusConflict, Reason: "Conflict", Message: err.Error()}
	}
	return &failure{code: http.StatusInternalServerError, Message: err.Error()}
}

func (f *failure) write(response http.ResponseWriter) {
	response.Header().Set("content-type", "application/json")
	if f.code == http.StatusTooManyRequests {
		response.Header().Set("retry-after", fmt.Sprintf("%.0f", math.Ceil(f.after)))
	}
	response.WriteHeader(f.code)
	report := Object{"message": f.Message}
	if f.Reason != "" {
		report["reason"] = f.Reason
	}
	_ = json.NewEncoder(response).Encode(report)
}
