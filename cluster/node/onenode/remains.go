// What containers and a kubelet leave outside of the folder when they are killed, and the folder itself.
package onenode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func cutJSON(name string) (string, bool) { return strings.CutSuffix(name, ".json") }

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// bundles are the folders of containers that containerd did not get to remove.
func (c *Cluster) bundles() []string {
	found, _ := filepath.Glob(filepath.Join(c.containerdState(), "io.containerd.runtime.v2.task", "*", "*"))
	return found
}

// removeShimSockets: a shim's socket is in a folder that all containerds share, so only those that our bundles name go.
func (c *Cluster) removeShimSockets() error {
	for _, bundle := range c.bundles() {
		address, err := os.ReadFile(filepath.Join(bundle, "address"))
		if err != nil {
			continue
		}
		if path, isUnix := strings.CutPrefix(strings.TrimSpace(string(address)), "unix://"); isUnix {
			if err := os.Remove(path); err != nil && !absent(err) {
				return err
			}
		}
	}
	// Made by the first shim; of the machine's own containerd they are not empty.
	for _, folder := range []string{"/run/containerd/s", "/run/containerd"} {
		_ = os.Remove(folder)
	}
	return nil
}

func (c *Cluster) containerCgroups() []string {
	var found []string
	for _, bundle := range c.bundles() {
		var spec struct {
			Linux struct{ CgroupsPath string }
		}
		content, err := os.ReadFile(filepath.Join(bundle, "config.json"))
		if err == nil && json.Unmarshal(content, &spec) == nil && len(spec.Linux.CgroupsPath) > 1 {
			found = append(found, spec.Linux.CgroupsPath)
		}
	}
	return found
}

func removeCgroups(paths []string) error {
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return err
	}
	for _, hierarchy := range append(hierarchies, "/sys/fs/cgroup") {
		for _, path := range paths {
			top := filepath.Join(hierarchy, path)
			var folders []string
			_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					folders = append(folders, path)
				}
				return nil
			})
			slices.Reverse(folders)
			for _, folder := range folders {
				if err := removeCgroup(folder); err != nil {
					return err
				}
			}
		}
		_ = os.Remove(filepath.Join(hierarchy, containerdSpace)) // the parent of them all, if this was its last
	}
	return nil
}

// removeCgroup waits a little: the kernel counts killed processes until it has cleaned up after them.
func removeCgroup(folder string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := os.Remove(folder)
		if err == nil || absent(err) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("control group %s is still in use: %w", folder, err)
		}
		time.Sleep(pollEvery)
	}
}

// detachLoops frees the loop devices that a kubelet lays over raw block volumes to hold them.
func (c *Cluster) detachLoops() error {
	const clearBackingFile = 0x4C01 // LOOP_CLR_FD
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(backing), c.folder+"/") {
			continue
		}
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		open, err := os.Open(device)
		if err != nil {
			return err
		}
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, open.Fd(), clearBackingFile, 0)
		open.Close()
		if errno != 0 && errno != syscall.ENXIO {
			return fmt.Errorf("detach %s from %s: %w", device, strings.TrimSpace(string(backing)), errno)
		}
	}
	return nil
}

// unmount takes everything below the folder away, the last mounted first.
func (c *Cluster) unmount() error {
	for range 10 {
		mounted, err := c.mountedBelow()
		if err != nil || len(mounted) == 0 {
			return err
		}
		slices.Reverse(mounted)
		for _, path := range mounted {
			if err := syscall.Unmount(path, 0); err == nil || err == syscall.EINVAL {
				continue
			}
			// Somebody stands in it; it goes when they leave, and is out of our way now.
			if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil && err != syscall.EINVAL {
				return fmt.Errorf("unmount %s: %w", path, err)
			}
		}
	}
	return fmt.Errorf("mounts below %s keep coming back: something still mounts there", c.folder)
}

func (c *Cluster) mountedBelow() ([]string, error) {
	all, err := mountpoints()
	var found []string
	for _, one := range all {
		if one.path == c.folder || strings.HasPrefix(one.path, c.folder+"/") {
			found = append(found, one.path)
		}
	}
	return found, err
}

// removeBridge takes the pods' ends of it as well, which outlive a namespace that is being cleaned up.
func removeBridge() error {
	ports, _ := os.ReadDir(filepath.Join("/sys/class/net", bridge, "brif"))
	for _, port := range ports {
		_ = run(context.Background(), "ip", "link", "delete", port.Name())
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", bridge)); absent(err) {
		return nil
	}
	return run(context.Background(), "ip", "link", "delete", bridge)
}

// removeAddressCache: the network plugins' library remembers what it did for each pod in a folder of the machine.
func (c *Cluster) removeAddressCache() error {
	const cache = "/var/lib/cni/results"
	sandboxes, _ := filepath.Glob(c.path("containerd", "*", "io.containerd.grpc.v1.cri", "sandboxes", "*"))
	for _, sandbox := range sandboxes {
		found, _ := filepath.Glob(cache + "/*-" + filepath.Base(sandbox) + "-*")
		for _, file := range found {
			if err := os.Remove(file); err != nil && !absent(err) {
				return err
			}
		}
	}
	for _, folder := range []string{cache, "/var/lib/cni/cache", "/var/lib/cni"} {
		_ = os.Remove(folder)
	}
	return nil
}

// removeKubeletPlugins: the one folder of a kubelet with a fixed place. It is ours if our kubelet ran, as that does
// not start beside another; and if one of the machine's own came later, it listens there.
func (c *Cluster) removeKubeletPlugins() error {
	_, unrecorded := c.record("kubelet")
	_, unseen := os.Stat(c.path("kubelet", "plugins_registry"))
	if (unrecorded != nil && unseen != nil) || noOtherKubelet() != nil {
		return nil
	}
	for _, file := range []string{"kubelet.sock", "kubelet_internal_checkpoint", "DEPRECATION"} {
		if err := os.Remove(filepath.Join(kubeletPlugins, file)); err != nil && !absent(err) {
			return err
		}
	}
	for _, folder := range []string{kubeletPlugins, filepath.Dir(kubeletPlugins)} {
		_ = os.Remove(folder)
	}
	return nil
}

func (c *Cluster) unlinkKubeconfig() error {
	links, err := c.kubeconfigLinks()
	for _, link := range links {
		if target, readErr := os.Readlink(link); readErr == nil && target == c.kubeconfig() {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}

// removeFolder looks again before it removes anything: below a mount that was missed lies somebody's data.
func (c *Cluster) removeFolder() error {
	mounted, err := c.mountedBelow()
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return fmt.Errorf("%s is still mounted, so %s was not removed", mounted[0], c.folder)
	}
	// The state file goes last: while it is there, the folder is known to be ours.
	entries, err := os.ReadDir(c.folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == stateFile {
			continue
		}
		if err := os.RemoveAll(c.path(entry.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.folder)
}
