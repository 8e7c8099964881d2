// Package suites keeps upstream's suites and its kwok provider among the dependencies of this module.
package suites

import (
	_ "sigs.k8s.io/karpenter/kwok/cloudprovider"
	_ "sigs.k8s.io/karpenter/test/pkg/environment/common"
)
