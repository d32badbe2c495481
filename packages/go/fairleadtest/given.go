// Package fairleadtest has tests of decisions: fairleadtest.Given(t, website, request).Returns(outcome).
package fairleadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	fairlead "fairlead.dev/go"
)

// Decision of a function on a request.
type Decision struct {
	t      *testing.T
	answer any
	err    error
}

// Given calls the function with these fields of a request, at 2030-01-01T00:00:00Z if now is left out.
func Given[Spec, Status any](t *testing.T, function fairlead.Function[Spec, Status], request fairlead.Object) Decision {
	t.Helper()
	asked := fairlead.Object{"now": "2030-01-01T00:00:00Z", "seed": "seed"}
	maps.Copy(asked, request)
	body, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := function.Answer(context.Background(), body)
	return Decision{t, answer, err}
}

// Returns demands these fields. Objects may have more than those that are named; lists have the same length.
func (d Decision) Returns(expected fairlead.Object) {
	d.t.Helper()
	if d.err != nil {
		d.t.Fatal(d.err)
	}
	for _, line := range differences(plain(d.t, d.answer), plain(d.t, expected), "outcome") {
		d.t.Error(line)
	}
}

// Fails demands an error whose message contains the text.
func (d Decision) Fails(message string) {
	d.t.Helper()
	if d.err == nil || !strings.Contains(d.err.Error(), message) {
		d.t.Errorf("no error with %q, but %v, %v", message, d.answer, d.err)
	}
}

func plain(t *testing.T, value any) (found any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func differences(found, expected any, path string) (lines []string) {
	object, isObject := found.(fairlead.Object)
	wanted, isWanted := expected.(fairlead.Object)
	if isObject && isWanted {
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			lines = append(lines, differences(object[name], wanted[name], path+"."+name)...)
		}
		return lines
	}
	list, isList := found.([]any)
	named, isNamed := expected.([]any)
	if isList && isNamed && len(list) == len(named) {
		for index := range list {
			lines = append(lines, differences(list[index], named[index], fmt.Sprintf("%s[%d]", path, index))...)
		}
		return lines
	}
	if reflect.DeepEqual(found, expected) {
		return nil
	}
	return []string{fmt.Sprintf("%s: expected %v, returned %v", path, expected, found)}
}
