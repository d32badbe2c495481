// Package fairlead has functions of Fairlead in Go: Kubernetes reconcilers over HTTP, or as executables.
//
//	type Spec struct { Replicas int `json:"replicas"` }
//	type Status struct { Ready int `json:"ready"` }
//
//	func main() {
//		fairlead.Function[Spec, Status]{Name: "website", Reconcile: reconcile}.Main()
//	}
package fairlead

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Object is a Kubernetes object as it travels.
type Object = map[string]any

// Metadata has what functions usually read.
type Metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
}

// Resource is the object that a function is for.
type Resource[Spec, Status any] struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
	Status     Status   `json:"status"`
}

// Objects are those of each declared kind: Pod.v1, Deployment.v1.apps.
type Objects map[string][]json.RawMessage

// Of decodes the objects of a kind.
func Of[T any](objects Objects, kind string) ([]T, error) {
	found := make([]T, len(objects[kind]))
	for index, one := range objects[kind] {
		if err := json.Unmarshal(one, &found[index]); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return found, nil
}

// Refusal is a write of this run that was refused.
type Refusal struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

// Performed is the last effect of the run. Decide on External.
type Performed struct {
	Effect json.RawMessage `json:"effect"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Request is the input of a decision. Decide on it alone: an equal request must give an equal outcome.
type Request[Spec, Status any] struct {
	Object     *Resource[Spec, Status] `json:"object"`
	Owned      Objects                 `json:"owned"`
	Related    Objects                 `json:"related"`
	Attempt    int                     `json:"attempt"`
	Now        time.Time               `json:"now"`
	Seed       string                  `json:"seed"`
	Finalizing bool                    `json:"finalizing"`
	Refused    map[string][]Refusal    `json:"refused"`
	External   json.RawMessage         `json:"external"`
	Performed  *Performed              `json:"performed"`
}

var others = regexp.MustCompile("[^A-Za-z0-9]")

// Secret returns 32 random letters and digits: the same for one name in a run. Call it only if no Secret is stored.
func (r Request[Spec, Status]) Secret(name string) (string, error) {
	if r.Seed == "" {
		return "", fmt.Errorf("no secret %q can be drawn: the request has no seed", name)
	}
	drawn := ""
	for round := range 2 {
		code := hmac.New(sha512.New, []byte(r.Seed))
		fmt.Fprintf(code, "%d %s", round, name)
		drawn += base64.StdEncoding.EncodeToString(code.Sum(nil))
	}
	return others.ReplaceAllString(drawn, "")[:32], nil
}

// Condition of the object. A nil Status removes it.
type Condition struct {
	Type    string  `json:"type"`
	Status  *string `json:"status"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
}

// Is returns a condition with this status.
func Is(conditionType string, status bool, reason, message string) Condition {
	text := map[bool]string{true: "True", false: "False"}[status]
	return Condition{Type: conditionType, Status: &text, Reason: reason, Message: message}
}

// Event about the object. Type is Normal or Warning.
type Event struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// OwnMetadata has all labels and annotations that the function keeps on its object.
type OwnMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Outcome is the desired state. A field that is nil stays as it is; an Apply without objects deletes what is owned.
type Outcome[Status any] struct {
	Apply               []any        `json:"apply,omitzero"`
	Patch               []any        `json:"patch,omitzero"`
	Act                 []any        `json:"act,omitzero"`
	Status              *Status      `json:"status,omitzero"`
	Conditions          []Condition  `json:"conditions,omitzero"`
	Metadata            *OwnMetadata `json:"metadata,omitzero"`
	DeleteObject        bool         `json:"deleteObject,omitzero"`
	Events              []Event      `json:"events,omitzero"`
	Metrics             []any        `json:"metrics,omitzero"`
	RequeueAfterSeconds float64      `json:"requeueAfterSeconds,omitzero"`
	RequeueAt           time.Time    `json:"requeueAt,omitzero"`
	Effect              any          `json:"effect,omitzero"`
}

// TerminalError stops the retries of an object until something changes: the input is wrong.
type TerminalError struct{ Reason, Message string }

func (e *TerminalError) Error() string { return e.Message }

// An answer without a reason would not be terminal.
func (e *TerminalError) reason() string { return cmp.Or(e.Reason, "TerminalError") }

// RetryAfterError retries the call after this time, without backoff.
type RetryAfterError struct {
	Reason, Message string
	After           time.Duration
}

func (e *RetryAfterError) Error() string { return e.Message }

func (e *RetryAfterError) reason() string { return cmp.Or(e.Reason, "RetryAfter") }

// A time that has passed means now.
func (e *RetryAfterError) seconds() float64 { return max(0, e.After.Seconds()) }

// ErrConflict retries the call at once, also wrapped: the state that it decided on has changed meanwhile.
var ErrConflict = errors.New("the state has changed meanwhile")

// Function of a Reconciler, which has its name. Finalize, Read and Perform may be nil.
type Function[Spec, Status any] struct {
	Name      string
	Reconcile func(context.Context, Request[Spec, Status]) (Outcome[Status], error)
	// Finalize is called instead while the object is being deleted.
	Finalize func(context.Context, Request[Spec, Status]) (Outcome[Status], error)
	// Read returns the state of the external system.
	Read func(context.Context, Request[Spec, Status]) (any, error)
	// Perform performs an effect, and returns its result.
	Perform func(ctx context.Context, effect json.RawMessage, request Request[Spec, Status]) (any, error)
}

// Answer returns the body of the answer to the body of a request, or the error of the function. A panic is an error.
func (f Function[Spec, Status]) Answer(ctx context.Context, body []byte) (answer any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	var request Request[Spec, Status]
	var asked struct {
		Ask    string          `json:"ask"`
		Effect json.RawMessage `json:"effect"`
	}
	if err := errors.Join(json.Unmarshal(body, &asked), json.Unmarshal(body, &request)); err != nil {
		return nil, err
	}
	nothing := Object{}
	switch {
	case request.Object == nil && asked.Ask == "read":
		return Object{"external": nil}, nil
	case request.Object == nil:
		return nothing, nil
	case asked.Ask == "read" && f.Read != nil:
		external, err := f.Read(ctx, request)
		return Object{"external": external}, err
	case asked.Ask == "perform" && f.Perform != nil:
		result, err := f.Perform(ctx, asked.Effect, request)
		if result == nil {
			return nothing, err
		}
		return Object{"result": result}, err
	case asked.Ask != "":
		return nil, f.missing(asked.Ask)
	case request.Finalizing && f.Finalize == nil:
		return nil, f.missing("finalize")
	case request.Finalizing:
		return f.Finalize(ctx, request)
	case request.Object.Metadata.DeletionTimestamp != "":
		return nothing, nil
	}
	return f.Reconcile(ctx, request)
}

func (f Function[Spec, Status]) missing(what string) error {
	return fmt.Errorf("this version of the function of Reconciler %s has no %s", f.Name, what)
}
