// Bringing the cluster up. Each step makes sure of something and may be repeated, so an `up` that was killed, or one
// after a reboot, goes on from what is there.
package onenode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func (c *Cluster) up() error {
	begun := time.Now()
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root, for containers, mounts and a network bridge: run this as root")
	}
	programs, err := findPrograms()
	if err != nil {
		return err
	}
	lock, err := c.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	ctx := context.Background()
	services := c.services(programs)
	if c.running(ctx, services) {
		say("a cluster is up already, in %s", c.folder)
		return c.tell(programs)
	}
	if err := c.begin(services); err != nil {
		_ = os.Remove(c.folder) // which the lock made; it stays if anything is in it
		return err
	}
	if err := c.bring(ctx, programs, services); err != nil {
		return fmt.Errorf("%w\nWhat was started is still there, to be looked at: logs are in %s; localpool-cluster down removes all of it", err, c.path("log"))
	}
	say("up after %.1f s", time.Since(begun).Seconds())
	return c.tell(programs)
}

func (c *Cluster) running(ctx context.Context, services []Service) bool {
	for _, service := range services {
		record, err := c.record(service.name)
		if err != nil || !record.alive() || service.ready(ctx) != nil {
			return false
		}
	}
	return true
}

// begin finds out what is in the way before anything is changed, and makes the folder ours.
func (c *Cluster) begin(services []Service) error {
	if c.exists() && c.asked != 0 && c.asked != c.port {
		return fmt.Errorf("the cluster in %s is one at port %d, and %s asks for %d: localpool-cluster down first", c.folder, c.port, portVariable, c.asked)
	}
	if record, _ := c.record("kubelet"); !record.alive() {
		if err := noOtherKubelet(); err != nil {
			return err
		}
	}
	for _, service := range services {
		if record, _ := c.record(service.name); !record.alive() {
			if err := portsFree(service); err != nil {
				return err
			}
		}
	}
	if err := rangesUnused(); err != nil {
		return err
	}
	return c.claim()
}

func (c *Cluster) bring(ctx context.Context, programs *Programs, services []Service) error {
	for _, step := range []func() error{
		func() error { return c.prepareHost(ctx, programs) },
		c.makeCredentials,
		c.writeConfig,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	named := map[string]Service{}
	for _, service := range services {
		named[service.name] = service
	}
	start := func(name string) error {
		record, err := c.ensure(named[name])
		if err != nil {
			return err
		}
		return c.await(ctx, named[name], record)
	}
	// Containers and the control plane know nothing of each other until the kubelet joins them.
	err := together(
		func() error { return inOrder(start, "etcd", "kube-apiserver", "service-address") },
		func() error {
			if err := start("containerd"); err != nil {
				return err
			}
			return c.loadStartImages(ctx, programs)
		},
	)
	if err != nil {
		return err
	}
	err = together(
		func() error { return start("kube-controller-manager") },
		func() error { return start("kube-scheduler") },
		func() error { return start("kubelet") },
	)
	if err != nil {
		return err
	}
	return c.awaitServiceAccount(ctx)
}

func inOrder(start func(string) error, names ...string) error {
	for _, name := range names {
		if err := start(name); err != nil {
			return err
		}
	}
	return nil
}

func together(tasks ...func() error) error {
	results := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { results <- task() }()
	}
	var failed []error
	for range tasks {
		failed = append(failed, <-results)
	}
	return errors.Join(failed...)
}

// awaitServiceAccount: before it is there every pod is refused, though all components are ready.
func (c *Cluster) awaitServiceAccount(ctx context.Context) error {
	deadline := time.Now().Add(readyWithin)
	for {
		account := c.ask(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", "", nil)
		authority := c.ask(ctx, http.MethodGet, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", "", nil)
		reason := errors.Join(account, authority)
		if reason == nil {
			return nil
		}
		if time.Now().After(deadline) {
			record, err := c.record("kube-controller-manager")
			if err != nil {
				return err
			}
			return fmt.Errorf("the controller manager has not made the default ServiceAccount: %w. Its last words, from %s:\n%s",
				reason, record.Log, record.lastLines())
		}
		time.Sleep(pollEvery)
	}
}

// tell says where everything is, and links the kubeconfig to where the build is.
func (c *Cluster) tell(programs *Programs) error {
	link := filepath.Join(filepath.Dir(programs.bin), "kubeconfig")
	if target, err := os.Readlink(link); err != nil || target != c.kubeconfig() {
		if err := os.Remove(link); err != nil && !absent(err) {
			return err
		}
		if err := os.Symlink(c.kubeconfig(), link); err != nil {
			return err
		}
	}
	// Several builds may use one cluster, and `down` of any of them removes the links of all.
	links, err := c.kubeconfigLinks()
	if err != nil {
		return err
	}
	if !slices.Contains(links, link) {
		if err := write(c.linksFile(), []byte(strings.Join(append(links, link), "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	fmt.Printf("export KUBECONFIG=%s\nexport PATH=%s:$PATH\n", c.kubeconfig(), programs.bin)
	return nil
}

func (c *Cluster) linksFile() string { return c.path("kubeconfig.links") }

func (c *Cluster) kubeconfigLinks() ([]string, error) {
	content, err := os.ReadFile(c.linksFile())
	if err != nil && !absent(err) {
		return nil, err
	}
	return strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' }), nil
}
