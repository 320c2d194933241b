// What the cluster changes of the machine itself: a bridge, the propagation of mounts, and the kernel settings that a
// kubelet insists on. What was there before is written down first, and put back.
package onenode

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// host is how the machine was before.
type host struct {
	// Settings by their path below /proc/sys.
	Settings map[string]string `json:"settings"`
	// Mounts that did not propagate.
	Private []string `json:"private"`
}

var kubeletSettings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

const kubeletPlugins = "/var/lib/kubelet/device-plugins"

func (c *Cluster) hostFile() string { return c.path("host.json") }

// prepareHost is repeated after a reboot, which undoes all of it but the note.
func (c *Cluster) prepareHost(ctx context.Context, programs *Programs) error {
	if err := c.noteHost(); err != nil {
		return err
	}
	// Else what a driver mounts in its pod is neither seen by the kubelet nor by other pods.
	if err := syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("make the mounts of this machine propagate (mount --make-rshared /): %w", err)
	}
	return c.makeBridge(ctx, programs)
}

func (c *Cluster) noteHost() error {
	if _, err := os.Stat(c.hostFile()); err == nil {
		return nil
	}
	before := host{Settings: map[string]string{}}
	for _, setting := range kubeletSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", setting))
		if err != nil {
			return err
		}
		before.Settings[setting] = strings.TrimSpace(string(value))
	}
	mounts, err := mountpoints()
	if err != nil {
		return err
	}
	for _, one := range mounts {
		if !one.shared {
			before.Private = append(before.Private, one.path)
		}
	}
	content, err := json.Marshal(before)
	if err != nil {
		return err
	}
	return write(c.hostFile(), content, 0o600)
}

func (c *Cluster) restoreHost() error {
	content, err := os.ReadFile(c.hostFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var before host
	if err := json.Unmarshal(content, &before); err != nil {
		return err
	}
	var wrong []error
	for setting, value := range before.Settings {
		path := filepath.Join("/proc/sys", setting)
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != value {
			wrong = append(wrong, os.WriteFile(path, []byte(value), 0o644))
		}
	}
	for _, path := range before.Private {
		// EINVAL and ENOENT: it is no mount any more.
		if err := syscall.Mount("", path, "", syscall.MS_PRIVATE, ""); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
			wrong = append(wrong, fmt.Errorf("make %s private again: %w", path, err))
		}
	}
	return errors.Join(wrong...)
}

func (c *Cluster) makeBridge(ctx context.Context, programs *Programs) error {
	if _, err := net.InterfaceByName(bridge); err != nil {
		// With an address of its own, as a bridge else takes that of whichever pod came last, and the others lose it.
		if err := run(ctx, programs.ip, "link", "add", bridge, "address", "0a:6c:70:6f:6f:6c", "type", "bridge"); err != nil {
			return err
		}
	}
	for _, arguments := range [][]string{
		{"addr", "replace", nodeAddress + podRangeBits, "dev", bridge},
		// What kube-proxy would translate is simply here: the apiserver's service address is one of the node's.
		{"addr", "replace", serviceAddress + "/32", "dev", bridge},
		{"link", "set", bridge, "up"},
	} {
		if err := run(ctx, programs.ip, arguments...); err != nil {
			return err
		}
	}
	return nil
}

func rangesUnused() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, one := range interfaces {
		if one.Name == bridge {
			continue
		}
		addresses, err := one.Addrs()
		if err != nil {
			continue
		}
		for _, address := range addresses {
			held, err := netip.ParsePrefix(address.String())
			if err != nil {
				continue
			}
			for _, wanted := range []string{podRange, serviceRange} {
				if netip.MustParsePrefix(wanted).Overlaps(held) {
					return fmt.Errorf("interface %s has %s, within %s which the cluster needs: take that interface down first", one.Name, held, wanted)
				}
			}
		}
	}
	return nil
}

// noOtherKubelet keeps us away from a machine that is a node already: one folder of a kubelet cannot be moved.
func noOtherKubelet() error {
	connection, err := net.Dial("unix", filepath.Join(kubeletPlugins, "kubelet.sock"))
	if err != nil {
		return nil
	}
	connection.Close()
	return errors.New("another kubelet runs on this machine: this cluster would disturb it, so nothing was started")
}

type mountpoint struct {
	path   string
	shared bool
}

// mountpoints lists what is mounted where, in the order in which it was.
func mountpoints() ([]mountpoint, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []mountpoint
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, _, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		one := mountpoint{path: unescape.Replace(fields[4])}
		for _, option := range fields[6:] {
			one.shared = one.shared || strings.HasPrefix(option, "shared:")
		}
		found = append(found, one)
	}
	return found, lines.Err()
}
