package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The same types under any kinds: a fleet has many of them.
func addKinds(scheme *runtime.Scheme, at, memcached string) {
	atGroup := schema.GroupVersion{Group: "cnat.programming-kubernetes.info", Version: "v1alpha1"}
	memcachedGroup := schema.GroupVersion{Group: "cache.example.com", Version: "v1alpha1"}
	add := func(group schema.GroupVersion, kind string, object, list runtime.Object) {
		if kind == "" {
			return
		}
		scheme.AddKnownTypeWithName(group.WithKind(kind), object)
		scheme.AddKnownTypeWithName(group.WithKind(kind+"List"), list)
		metav1.AddToGroupVersion(scheme, group)
	}
	add(atGroup, at, &At{}, &AtList{})
	add(memcachedGroup, memcached, &Memcached{}, &MemcachedList{})
}

type Phase string

const (
	Pending Phase = "PENDING"
	Running Phase = "RUNNING"
	Done    Phase = "DONE"
)

// At runs a command once, at its time, in a pod.
type At struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Schedule metav1.Time `json:"schedule"`
		Command  string      `json:"command"`
	} `json:"spec"`
	Status struct {
		Phase Phase `json:"phase,omitempty"`
	} `json:"status,omitempty"`
}

type AtList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []At `json:"items"`
}

// Memcached is a Deployment of so many servers.
type Memcached struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size  int32  `json:"size"`
		Image string `json:"image"`
	} `json:"spec"`
}

type MemcachedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Memcached `json:"items"`
}

func (at *At) DeepCopy() *At {
	c := *at
	at.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (m *Memcached) DeepCopy() *Memcached {
	c := *m
	m.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (at *At) DeepCopyObject() runtime.Object       { return at.DeepCopy() }
func (m *Memcached) DeepCopyObject() runtime.Object { return m.DeepCopy() }

func (list *AtList) DeepCopyObject() runtime.Object {
	c := AtList{TypeMeta: list.TypeMeta, ListMeta: list.ListMeta}
	for i := range list.Items {
		c.Items = append(c.Items, *list.Items[i].DeepCopy())
	}
	return &c
}

func (list *MemcachedList) DeepCopyObject() runtime.Object {
	c := MemcachedList{TypeMeta: list.TypeMeta, ListMeta: list.ListMeta}
	for i := range list.Items {
		c.Items = append(c.Items, *list.Items[i].DeepCopy())
	}
	return &c
}
