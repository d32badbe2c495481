package main

import (
	"context"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const mostWeight = 1000

// Validator has the same checks as `validate` of site.ts.
type Validator struct{}

func (Validator) ValidateCreate(_ context.Context, site *Site) (admission.Warnings, error) {
	return nil, validate(site)
}

func (Validator) ValidateUpdate(_ context.Context, _, site *Site) (admission.Warnings, error) {
	return nil, validate(site)
}

func (Validator) ValidateDelete(context.Context, *Site) (admission.Warnings, error) {
	return nil, nil
}

func validate(site *Site) error {
	var wrong field.ErrorList
	spec := field.NewPath("spec")
	if parsed, err := url.Parse(site.Spec.HTTP.URL); err != nil || parsed.Host == "" {
		wrong = append(wrong, field.Invalid(spec.Child("http", "url"), site.Spec.HTTP.URL, "it is no URL"))
	}
	paths := make(map[string]bool, len(site.Spec.Routes))
	var weight int32
	for index, route := range site.Spec.Routes {
		if paths[route.Path] {
			wrong = append(wrong, field.Duplicate(spec.Child("routes").Index(index).Child("path"), route.Path))
		}
		paths[route.Path] = true
		weight += route.Weight
	}
	if weight > mostWeight {
		wrong = append(wrong, field.Invalid(spec.Child("routes"), weight, "the weights are above 1000 together"))
	}
	if len(wrong) == 0 {
		return nil
	}
	return apierrors.NewInvalid(stored.WithKind("Site").GroupKind(), site.Name, wrong)
}
