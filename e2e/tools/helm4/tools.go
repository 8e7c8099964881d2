//go:build tools

// Package tools names the program that build.sh builds, so that go.mod keeps it.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
