// Command kubelet is a machine for tests: the genuine kubelet of Kubernetes, and a container runtime that runs nothing.
//
//	kubelet runtime --listen SOCKET    the runtime, until it is stopped
//	kubelet kubelet ARGUMENT…          upstream's kubelet, unchanged
//
// Containers of that runtime are records: they start, run and stop when they are told to. What the kubelet does around them (registration, heartbeats, status of
// pods, their end within their grace period) is its own.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: kubelet runtime --listen SOCKET | kubelet kubelet ARGUMENT…")
	}
	switch command := os.Args[1]; command {
	case "kubelet":
		os.Args = append([]string{"kubelet"}, os.Args[2:]...)
		os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
	case "runtime":
		if len(os.Args) != 4 || os.Args[2] != "--listen" {
			fail("usage: kubelet runtime --listen SOCKET")
		}
		if err := serve(os.Args[3]); err != nil {
			fail(err.Error())
		}
	default:
		fail(fmt.Sprintf("unknown command %q; expected runtime or kubelet", command))
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}
