// Command render checks a kustomization as far as that is possible without a cluster. It renders
// the kustomization as `kubectl kustomize` does, decodes every object strictly into its Kubernetes
// type, and prints the objects as a JSON array:
//
//	go run . ../../../deploy/kubernetes/example
//
// A file that is not a directory is decoded as a Pod: the overrides of `kubectl run`. This is a
// module of its own, so that the product does not depend on Kubernetes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// types are the types of the objects that a kustomization may have.
var types = map[string]func() any{
	"apps/v1 Deployment":                 func() any { return new(appsv1.Deployment) },
	"batch/v1 Job":                       func() any { return new(batchv1.Job) },
	"networking.k8s.io/v1 Ingress":       func() any { return new(networkingv1.Ingress) },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":      func() any { return new(policyv1.PodDisruptionBudget) },
	"v1 ConfigMap":                       func() any { return new(corev1.ConfigMap) },
	"v1 Pod":                             func() any { return new(corev1.Pod) },
	"v1 Service":                         func() any { return new(corev1.Service) },
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("name one directory or file")
	}
	objects, err := render(args[0])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(objects)
}

// render returns the objects of a kustomization, or of a file.
func render(path string) ([]any, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		object, err := decode("v1 Pod", text)
		return []any{object}, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, err
	}
	var objects []any
	for _, resource := range resources.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			return nil, err
		}
		object, err := decode(resource.GetApiVersion()+" "+resource.GetKind(), text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// decode fails for a field that the type does not have.
func decode(kind string, text []byte) (any, error) {
	make, known := types[kind]
	if !known {
		return nil, fmt.Errorf("%s is not a kind that this program knows", kind)
	}
	object := make()
	return object, yaml.UnmarshalStrict(text, object)
}
