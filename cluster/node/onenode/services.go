// The processes of the cluster, in the order in which they start: what each is called with, where it listens, and how
// one knows that it is ready.
package onenode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Service is one process to be kept.
type Service struct {
	name  string
	argv  []string
	env   []string
	ports []string      // addresses that must be free before it starts
	stop  time.Duration // how long it may take to end by itself
	ready func(context.Context) error
}

// shortNames are what people type.
var shortNames = map[string]string{
	"apiserver":          "kube-apiserver",
	"controller-manager": "kube-controller-manager",
	"scheduler":          "kube-scheduler",
}

func (c *Cluster) services(programs *Programs) []Service {
	loopback := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	apiserver := loopback(c.apiserverPort())
	etcd, nobody := "unix://"+c.etcdSocket(), "http://localhost:2380"
	return []Service{
		{
			name: "etcd", stop: 3 * time.Second,
			argv: []string{programs.beside("etcd"), "--name=" + NodeName, "--data-dir=" + c.path("etcd"),
				"--listen-client-urls=" + etcd, "--advertise-client-urls=" + nobody,
				// It has no peers, but insists on addresses that they could call.
				"--listen-peer-urls=" + etcd + "-peer", "--initial-advertise-peer-urls=" + nobody,
				"--initial-cluster=" + NodeName + "=" + nobody,
				// Its data is worth no more than the cluster, and the tests' own disks should have this one's time.
				"--unsafe-no-fsync", "--log-level=warn"},
			ready: healthy("http://etcd/health", c.etcdSocket(), "true"),
		}, {
			name: "kube-apiserver", ports: []string{apiserver},
			// Asked to end, it hears nobody any more, and waits a minute for watches that never end.
			stop: 3 * time.Second,
			argv: []string{programs.beside("kube-apiserver"), "--bind-address=127.0.0.1",
				fmt.Sprintf("--secure-port=%d", c.apiserverPort()), "--advertise-address=" + nodeAddress,
				"--endpoint-reconciler-type=none", "--etcd-servers=" + etcd,
				"--client-ca-file=" + c.certificate("ca"), "--tls-cert-file=" + c.certificate("apiserver"),
				"--tls-private-key-file=" + c.key("apiserver"), "--token-auth-file=" + c.tokenFile(),
				"--kubelet-certificate-authority=" + c.certificate("ca"),
				"--kubelet-client-certificate=" + c.certificate("apiserver-to-kubelet"),
				"--kubelet-client-key=" + c.key("apiserver-to-kubelet"), "--kubelet-preferred-address-types=InternalIP",
				"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
				"--service-account-key-file=" + c.path("pki", "service-accounts.pub"),
				"--service-account-signing-key-file=" + c.key("service-accounts"),
				"--service-cluster-ip-range=" + serviceRange, "--authorization-mode=Node,RBAC",
				"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false",
				"--audit-policy-file=" + c.auditPolicy(), "--audit-log-path=" + c.auditLog(), "--audit-log-maxsize=1000",
				// Without it, it drops what kubelet writes of volumes' health.
				"--feature-gates=CSIVolumeHealth=true"},
			ready: healthy("https://"+apiserver+"/readyz", "", "ok"),
		}, {
			name: "service-address", ports: []string{serviceListener}, stop: 2 * time.Second,
			argv:  []string{programs.beside("service-address"), serviceListener, apiserver},
			ready: healthy("https://"+serviceListener+"/livez", "", "ok"),
		}, {
			name: "kube-controller-manager", ports: []string{loopback(c.managerPort())}, stop: 10 * time.Second,
			argv: []string{programs.beside("kube-controller-manager"), "--bind-address=127.0.0.1",
				fmt.Sprintf("--secure-port=%d", c.managerPort()), "--kubeconfig=" + c.path("pki", "controller-manager.kubeconfig"),
				"--leader-elect=false", "--use-service-account-credentials=true", "--root-ca-file=" + c.certificate("ca"),
				"--service-account-private-key-file=" + c.key("service-accounts"),
				"--kube-api-qps=100", "--kube-api-burst=200", "--profiling=false"},
			// It answers well before it does anything, and then names each controller that runs.
			ready: healthy("https://"+loopback(c.managerPort())+"/healthz?verbose", "", "[+]garbage-collector-controller ok"),
		}, {
			name: "kube-scheduler", ports: []string{loopback(c.schedulerPort())}, stop: 10 * time.Second,
			argv: []string{programs.beside("kube-scheduler"), "--bind-address=127.0.0.1",
				fmt.Sprintf("--secure-port=%d", c.schedulerPort()), "--kubeconfig=" + c.path("pki", "scheduler.kubeconfig"),
				"--leader-elect=false", "--profiling=false"},
			ready: healthy("https://"+loopback(c.schedulerPort())+"/healthz", "", "ok"),
		}, {
			name: "containerd", stop: 10 * time.Second,
			argv:  []string{programs.containerd, "--config", c.containerdConfig()},
			ready: func(ctx context.Context) error { return c.ctr(ctx, programs, nil, "version") },
		}, {
			name: "kubelet", ports: []string{fmt.Sprintf("%s:%d", nodeAddress, c.kubeletPort()), loopback(c.kubeletHealthPort())}, stop: 10 * time.Second,
			argv: []string{programs.beside("kubelet"), "--config=" + c.kubeletConfig(), "--root-dir=" + c.path("kubelet"),
				"--cert-dir=" + c.path("kubelet", "pki"), "--kubeconfig=" + c.path("pki", "kubelet.kubeconfig"),
				"--hostname-override=" + NodeName, "--node-ip=" + nodeAddress},
			env:   []string{ContainerLogsVariable + "=" + c.containerLogs()},
			ready: c.kubeletReady,
		},
	}
}

// kubeletReady: the node's condition alone would be what the last kubelet said of it.
func (c *Cluster) kubeletReady(ctx context.Context) error {
	if err := healthy(fmt.Sprintf("http://127.0.0.1:%d/healthz", c.kubeletHealthPort()), "", "ok")(ctx); err != nil {
		return err
	}
	return c.nodeReady(ctx)
}

// healthy asks an address that answers 200, with certain words, when all is well; by TCP or by a socket in the
// filesystem. The certificate is not looked at: two components make theirs up, and the question holds no secret.
func healthy(address, socket, words string) func(context.Context) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	client := &http.Client{Transport: transport, Timeout: 3 * time.Second}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 10000))
		if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), words) {
			return fmt.Errorf("%s answers %s: %s", address, answer.Status, strings.TrimSpace(string(text)))
		}
		return nil
	}
}

// Programs are the executables that the cluster is made of.
type Programs struct {
	bin                  string // our own, with the links beside it
	containerd, ctr      string
	busybox, ip, losetup string
}

func (p *Programs) beside(name string) string { return filepath.Join(p.bin, name) }

// findPrograms names everything that is missing at once, and who brings it.
func findPrograms() (*Programs, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	programs := &Programs{bin: filepath.Dir(self)}
	var missing []string
	look := func(names ...string) string {
		for _, name := range names {
			for _, folder := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
				path := filepath.Join(folder, name)
				if filepath.IsAbs(name) {
					path = name
				}
				if found, err := os.Stat(path); err == nil && found.Mode()&0o111 != 0 {
					return path
				}
			}
		}
		missing = append(missing, names[0])
		return ""
	}
	programs.containerd, programs.ctr = look("containerd"), look("ctr")
	programs.ip, programs.losetup = look("ip"), look("losetup")
	programs.busybox = look("busybox")
	for _, name := range []string{"containerd-shim-runc-v2", "runc", "mount", "umount",
		cniPlugins + "/bridge", cniPlugins + "/host-local", cniPlugins + "/loopback"} {
		look(name)
	}
	var unbuilt []string
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet",
		"service-address", "pause", "csi-provisioner", "csi-resizer"} {
		if _, err := os.Stat(programs.beside(name)); err != nil {
			unbuilt = append(unbuilt, name)
		}
	}
	var complaint []string
	if len(missing) > 0 {
		complaint = append(complaint, fmt.Sprintf("not installed on this machine: %s; scripts/deps cluster installs what is missing (as root)",
			strings.Join(missing, ", ")))
	}
	if len(unbuilt) > 0 {
		complaint = append(complaint, fmt.Sprintf("not built into %s: %s; make cluster-build builds it", programs.bin, strings.Join(unbuilt, ", ")))
	}
	if len(complaint) > 0 {
		return nil, errors.New(strings.Join(complaint, "\n"))
	}
	return programs, nil
}
