package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const group = "webhooks.bench.test"

var (
	stored = schema.GroupVersion{Group: group, Version: "v1"}
	old    = schema.GroupVersion{Group: group, Version: "v1beta1"}
)

func addKinds(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(stored.WithKind("Site"), &Site{})
	scheme.AddKnownTypeWithName(old.WithKind("Site"), &OldSite{})
	metav1.AddToGroupVersion(scheme, stored)
	metav1.AddToGroupVersion(scheme, old)
}

type Route struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Backend string `json:"backend"`
	Weight  int32  `json:"weight"`
}

type HTTP struct {
	URL       string `json:"url"`
	TimeoutMs int32  `json:"timeoutMs"`
}

type Status struct {
	Tick string `json:"tick,omitempty"`
}

// Site in the stored version.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		HTTP   HTTP    `json:"http"`
		Least  int32   `json:"least"`
		Most   int32   `json:"most"`
		Routes []Route `json:"routes"`
	} `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// OldSite is a Site of v1beta1.
type OldSite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		URL       string  `json:"url"`
		TimeoutMs int32   `json:"timeoutMs"`
		Least     int32   `json:"least"`
		Most      int32   `json:"most"`
		Routes    []Route `json:"routes"`
	} `json:"spec"`
	Status Status `json:"status,omitempty"`
}

func (*Site) Hub() {}

func (from *OldSite) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Site)
	to.ObjectMeta = from.ObjectMeta
	to.Spec.HTTP = HTTP{URL: from.Spec.URL, TimeoutMs: from.Spec.TimeoutMs}
	to.Spec.Least, to.Spec.Most, to.Spec.Routes = from.Spec.Least, from.Spec.Most, from.Spec.Routes
	to.Status = from.Status
	return nil
}

func (to *OldSite) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Site)
	to.ObjectMeta = from.ObjectMeta
	to.Spec.URL, to.Spec.TimeoutMs = from.Spec.HTTP.URL, from.Spec.HTTP.TimeoutMs
	to.Spec.Least, to.Spec.Most, to.Spec.Routes = from.Spec.Least, from.Spec.Most, from.Spec.Routes
	to.Status = from.Status
	return nil
}

func (s *Site) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Routes = append([]Route(nil), s.Spec.Routes...)
	return &c
}

func (s *OldSite) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Routes = append([]Route(nil), s.Spec.Routes...)
	return &c
}
