// Taking the cluster down: pods first, while there is someone who can stop them properly, then every process, then
// what they leave in the machine, then the folder. It also removes what an `up` that was killed, or a reboot, left.
package onenode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"
)

const (
	podGrace      = 2 // seconds
	podsGoneAfter = 20 * time.Second
)

func (c *Cluster) down() error {
	begun := time.Now()
	if os.Geteuid() != 0 {
		return errors.New("taking a cluster down needs root: run this as root")
	}
	if _, err := os.Stat(c.folder); err != nil {
		// A bridge may be all that is left of one whose folder was removed by hand.
		if err := removeBridge(); err != nil {
			return err
		}
		say("no cluster in %s", c.folder)
		return nil
	}
	lock, err := c.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if !c.exists() {
		entries, err := os.ReadDir(c.folder)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("%s holds no cluster that this tool made, so nothing in it was touched", c.folder)
		}
		return os.Remove(c.folder)
	}
	c.stopPods(context.Background())
	if err := c.stopProcesses(); err != nil {
		return err
	}
	// In this order: what holds mounts is gone, what is mounted holds the folder.
	var wrong []error
	cgroups := c.containerCgroups()
	for _, step := range []func() error{
		c.removeShimSockets, c.detachLoops, c.unmount, removeBridge, func() error { return removeCgroups(cgroups) },
		c.removeAddressCache, c.removeKubeletPlugins, c.restoreHost, c.unlinkKubeconfig,
	} {
		wrong = append(wrong, step())
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("%w\n%s is kept, so that this can be run again", err, c.folder)
	}
	if err := c.removeFolder(); err != nil {
		return err
	}
	say("down after %.1f s", time.Since(begun).Seconds())
	return nil
}

// stopPods asks; whoever does not answer in time is stopped with the processes. DaemonSets go last, as a driver's pod
// is needed to unmount what the others had.
func (c *Cluster) stopPods(ctx context.Context) {
	for _, name := range []string{"kube-apiserver", "kubelet", "containerd", "etcd"} {
		if record, _ := c.record(name); !record.alive() {
			return
		}
	}
	// Else they replace what is deleted.
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if record, err := c.record(name); err == nil {
			if err := end(record, 3*time.Second); err != nil {
				say("%v", err)
			}
		}
	}
	for _, drivers := range []bool{false, true} {
		deadline := time.Now().Add(podsGoneAfter)
		for {
			pods, err := c.pods(ctx)
			if err != nil {
				say("pods are stopped by force: %v", err)
				return
			}
			left := 0
			for _, one := range pods {
				if one.ofDaemonSet() && !drivers {
					continue
				}
				left++
				body := fmt.Sprintf(`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":%d}`, podGrace)
				// Repeated calls change nothing, and one that fails is made again.
				_ = c.ask(ctx, http.MethodDelete, one.path(), body, nil)
			}
			if left == 0 {
				break
			}
			if time.Now().After(deadline) {
				say("%d pods did not stop within %s; they are stopped by force", left, podsGoneAfter)
				break
			}
			time.Sleep(300 * time.Millisecond)
		}
	}
}

func (c *Cluster) stopProcesses() error {
	entries, err := os.ReadDir(c.path("run"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var tasks []func() error
	for _, entry := range entries {
		name, isRecord := cutJSON(entry.Name())
		if !isRecord {
			continue
		}
		if record, err := c.record(name); err == nil {
			tasks = append(tasks, func() error { return end(record, 2*time.Second) })
		}
	}
	if err := together(tasks...); err != nil {
		return err
	}
	return c.killRest()
}

// killRest ends containers, with what holds them, and our processes that have no record.
func (c *Cluster) killRest() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		all := c.processes()
		var rest []process
		for _, shim := range c.shims(all) {
			rest = append(append(rest, below(all, shim.pid)...), shim)
		}
		for _, one := range all {
			if one.marked && one.pid != os.Getpid() {
				rest = append(rest, one)
			}
		}
		if len(rest) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d (%s) does not end, even when killed: see /proc/%d/stack for what it waits for",
				rest[0].pid, rest[0].argv[0], rest[0].pid)
		}
		for _, one := range rest {
			// The list is a moment old, and the kernel gives numbers out in turn: it cannot be another's yet.
			syscall.Kill(one.pid, syscall.SIGKILL)
		}
		time.Sleep(pollEvery)
	}
}
