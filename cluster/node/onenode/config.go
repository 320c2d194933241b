// The configuration files of containerd, its network and the kubelet. Everything that they would keep under /var or
// /run is moved into our folder, so that a containerd or kubelet of the machine's own is not disturbed.
package onenode

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

func (c *Cluster) writeConfig() error {
	files := map[string]string{
		c.containerdConfig():                        c.containerdToml(c.snapshotter()),
		c.path("cni", "net.d", "10-localpool.conf"): c.networkJSON(),
		c.kubeletConfig():                           c.kubeletYAML(),
		c.auditPolicy():                             auditPolicy,
		// Pods get this one, where nobody listens: a question for a name fails at once, and none leaves the machine.
		c.path("resolv.conf"): "nameserver " + nodeAddress + "\n",
	}
	for path, content := range files {
		if err := write(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	for _, folder := range []string{c.path("kubelet"), c.path("pod-logs"), c.containerLogs()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) containerdConfig() string { return c.path("containerd", "config.toml") }
func (c *Cluster) kubeletConfig() string    { return c.path("kubelet.yaml") }
func (c *Cluster) auditPolicy() string      { return c.path("audit-policy.yaml") }
func (c *Cluster) auditLog() string         { return c.path("log", "audit.log") }
func (c *Cluster) containerLogs() string    { return c.path("container-logs") }

// snapshotter picks overlays, which start a container of a large image at once, and copies where the folder's
// filesystem cannot carry them. A choice once made stays: the images are unpacked for it.
func (c *Cluster) snapshotter() string {
	for _, name := range []string{"overlayfs", "native"} {
		if _, err := os.Stat(c.path("containerd", "root", "io.containerd.snapshotter.v1."+name, "metadata.db")); err == nil {
			return name
		}
	}
	probe := c.path("overlay-probe")
	defer os.RemoveAll(probe)
	for _, part := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(probe, part), 0o700); err != nil {
			return "native"
		}
	}
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", probe, probe, probe)
	merged := filepath.Join(probe, "merged")
	if err := syscall.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return "native"
	}
	if err := syscall.Unmount(merged, 0); err != nil {
		return "native"
	}
	return "overlayfs"
}

func (c *Cluster) containerdToml(snapshotter string) string {
	return fmt.Sprintf(`version = 2
root = %[1]q
state = %[2]q
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = %[3]q

[debug]
  level = "warn"

[plugins."io.containerd.internal.v1.opt"]
  path = %[4]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[5]q
  # A virtual machine or container may forbid to lower the score that decides whom the kernel kills first.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[6]q
    conf_dir = %[7]q

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %[8]q

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = %[9]q
        SystemdCgroup = false
`, c.path("containerd", "root"), c.containerdState(), c.containerdSocket(), c.path("containerd", "opt"), pauseImage,
		cniPlugins, c.path("cni", "net.d"), snapshotter, c.path("containerd", "runc"))
}

// The bridge is made by us (see host.go), so the plugin neither gives it an address nor turns on forwarding: pods
// reach each other, the node and the service address, and nothing beyond this machine.
func (c *Cluster) networkJSON() string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "localpool",
  "type": "bridge",
  "bridge": %q,
  "isGateway": false,
  "ipMasq": false,
  "ipam": {
    "type": "host-local",
    "dataDir": %q,
    "ranges": [[{"subnet": %q, "gateway": %q, "rangeStart": %q, "rangeEnd": %q}]],
    "routes": [{"dst": "0.0.0.0/0"}]
  }
}
`, bridge, c.path("cni", "addresses"), podRange, nodeAddress, firstPod, lastPod)
}

func (c *Cluster) kubeletYAML() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
port: %[2]d
healthzBindAddress: 127.0.0.1
healthzPort: %[12]d
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[3]s}
authorization: {mode: Webhook}
tlsCertFile: %[4]s
tlsPrivateKeyFile: %[5]s
containerRuntimeEndpoint: unix://%[6]s
# As plain as the oldest machine that is to be served: the first cgroup version, and nothing between root and pod.
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
enableProfilingHandler: false
clusterDNS: [%[7]s]
clusterDomain: cluster.local
resolvConf: %[8]s
podLogsDir: %[9]s
volumePluginDir: %[10]s
maxPods: %[11]d
# No registry brings an image back that was collected, so none is.
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
# The figures of volumes, which tests wait for, are as old as this.
volumeStatsAggPeriod: 10s
# What kubelet does once in a minute (a filesystem that grows, a pod that failed) is only waited for here, and so is its
# patience with containers that end as their cluster is taken from them.
syncFrequency: 10s
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
shutdownGracePeriod: 0s
featureGates: {CSIVolumeHealth: true, KubeletCrashLoopBackOffMax: true}
`, nodeAddress, c.kubeletPort(), c.certificate("ca"), c.certificate("kubelet-serving"), c.key("kubelet-serving"),
		c.containerdSocket(), nodeAddress, c.path("resolv.conf"), c.path("pod-logs"), c.path("volume-plugins"), maxPods, c.kubeletHealthPort())
}

// The API server notes who asked for what, without the objects: of the namespace that the driver is installed into, as
// all others have no rights that are of interest here.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:localpool"]
- level: None
`
