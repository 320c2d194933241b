// One program for the whole cluster: every Kubernetes component under its own name, and the commands that bring a
// node up and take it down. Takes the name from argv[0] (links beside the program) or from the first argument.
// One binary, because the components share nearly all of their code: it links in seconds instead of minutes.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/kubelet"

	"localpool.dev/cluster/onenode"
)

var components = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 runKubelet,
	"kubectl":                 runKubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := components[name]
	if !known && len(os.Args) > 1 {
		if run, known = components[os.Args[1]]; known {
			os.Args = os.Args[1:]
		}
	}
	if known {
		os.Exit(run())
	}
	if err := onenode.Command(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "localpool-cluster: %s\n", strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
}

func runKubelet() int {
	// Kubelet links every container's log into a folder of the host, whose place no option of its own moves.
	if folder := os.Getenv(onenode.ContainerLogsVariable); folder != "" {
		kubelet.ContainerLogsDir = folder
	}
	return cli.Run(kubeletapp.NewKubeletCommand(context.Background()))
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
