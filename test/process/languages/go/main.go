// Command shops is the function of test/process/languages.test.ts in Go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"strings"
	"time"

	fairlead "fairlead.dev/go"
)

type spec struct {
	Does string `json:"does"`
}

type status struct {
	Phase string `json:"phase,omitempty"`
}

type request = fairlead.Request[spec, status]
type outcome = fairlead.Outcome[status]

type pod struct {
	Metadata fairlead.Metadata `json:"metadata"`
}

func reconcile(_ context.Context, asked request) (outcome, error) {
	fmt.Println("a print is no answer")
	phase := "OPEN"
	switch asked.Object.Spec.Does {
	case "nothing":
		return outcome{}, nil
	case "terminal":
		return outcome{}, &fairlead.TerminalError{Reason: "TooSmall", Message: "too small"}
	case "refuses":
		return outcome{}, &fairlead.TerminalError{Message: "without a word"}
	case "hurries":
		return outcome{}, &fairlead.RetryAfterError{Message: "late", After: -5 * time.Second}
	case "overflows":
		return outcome{Metrics: []any{math.NaN()}}, nil
	case "echoes":
		return outcome{Status: &status{asked.Object.Metadata.Annotations["said"]}}, nil
	case "retry":
		return outcome{}, &fairlead.RetryAfterError{Reason: "Busy", Message: "busy", After: 1200 * time.Millisecond}
	case "conflict":
		return outcome{}, fmt.Errorf("moved: %w", fairlead.ErrConflict)
	case "fails":
		return outcome{}, errors.New("oops")
	case "waits":
		log.Print("waits")
		time.Sleep(time.Second)
	case "empties":
		return outcome{Apply: []any{}}, nil
	case "draws":
		drawn, err := asked.Secret("password")
		return outcome{Status: &status{drawn}}, err
	case "sees":
		words := []string{}
		for _, refused := range asked.Refused {
			words = append(words, refused[0].Reason)
		}
		pods, err := fairlead.Of[pod](asked.Owned, "Pod.v1")
		if err != nil {
			return outcome{}, err
		}
		for _, one := range pods {
			words = append(words, one.Metadata.Name)
		}
		words = append(words, asked.Now.Format("2006-01-02T15:04:05Z"))
		if asked.External != nil {
			var external []string
			if err := json.Unmarshal(asked.External, &external); err != nil {
				return outcome{}, err
			}
			words = append(words, external...)
		}
		return outcome{Status: &status{strings.Join(words, " ")}}, nil
	}
	return outcome{Status: &status{phase}, RequeueAfterSeconds: 5}, nil
}

var shops = fairlead.Function[spec, status]{
	Name:      "shops",
	Reconcile: reconcile,
	Read: func(_ context.Context, asked request) (any, error) {
		return []string{asked.Object.Metadata.Name}, nil
	},
	Perform: func(_ context.Context, effect json.RawMessage, _ request) (any, error) {
		var named struct{ Kind string }
		if err := json.Unmarshal(effect, &named); err != nil || named.Kind != "add" {
			return nil, err
		}
		return fairlead.Object{"id": 7}, nil
	},
}

func main() { shops.Main() }
