// Prints, for each Go type that the Kubernetes API serves, how its fields are written as JSON: one line a type,
// `DEFINITION|FIELD GO-TYPE HOW|…`. HOW is two letters: `e` (omitempty), `z` (omitzero) or `-` (always written), then the kind: `b`ool, `n`umber,
// s`t`ring, `s`truct, `m`ap, `l`ist, `p`ointer, `i`nterface.
//
// Run it inside a module that requires k8s.io/client-go and k8s.io/apiextensions-apiserver; its output is an input of
// `cargo xtask openapi-facts`.
package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

var seen = map[reflect.Type]bool{}
var lines []string

func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	host := strings.Split(parts[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return strings.Join(append(host, parts[1:]...), ".") + "." + t.Name()
}

func visit(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		visit(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[t] || !strings.Contains(t.PkgPath(), "k8s.io/") {
		return
	}
	seen[t] = true
	var fields []string
	collect(t, &fields)
	sort.Strings(fields)
	lines = append(lines, name(t)+"|"+strings.Join(fields, "|"))
}

func collect(t reflect.Type, fields *[]string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if tag[0] == "-" || f.PkgPath != "" && !f.Anonymous {
			continue
		}
		options := strings.Join(tag[1:], ",")
		if f.Anonymous && tag[0] == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				collect(inner, fields)
			}
			continue
		}
		if tag[0] == "" {
			continue
		}
		omit := "-"
		if strings.Contains(options, "omitzero") {
			omit = "z"
		} else if strings.Contains(options, "omitempty") {
			omit = "e"
		}
		*fields = append(*fields, fmt.Sprintf("%s %s %s%s", tag[0], strings.ReplaceAll(f.Type.String(), " ", ""), omit, kind(f.Type)))
		visit(f.Type)
	}
}

func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "b"
	case reflect.String:
		return "t"
	case reflect.Struct:
		return "s"
	case reflect.Map:
		return "m"
	case reflect.Slice, reflect.Array:
		return "l"
	case reflect.Pointer:
		return "p"
	case reflect.Interface:
		return "i"
	default:
		return "n"
	}
}

func main() {
	apiextensions.AddToScheme(scheme.Scheme)
	for _, t := range scheme.Scheme.AllKnownTypes() {
		visit(t)
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}
