// Package onenode brings a Kubernetes cluster of one node up on this machine and takes it down again.
//
// This file owns its names, addresses and places: one folder holds all of its state, one bridge its network, one range
// of ports its listeners. Everything else in the package asks here.
package onenode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	NodeName = "localpool-node-1"

	// ContainerLogsVariable tells our kubelet where its links to container logs go.
	ContainerLogsVariable = "LOCALPOOL_CLUSTER_CONTAINER_LOGS"

	folderVariable = "LOCALPOOL_CLUSTER_DIR"
	portVariable   = "LOCALPOOL_CLUSTER_PORT"
	defaultFolder  = "/var/lib/localpool-cluster"
	defaultPort    = 16443

	// Every process that we start carries this in its environment, with the folder as its value: so that `down` finds
	// one whose record was never written because `up` was killed between the two.
	markVariable = "LOCALPOOL_CLUSTER_MEMBER"

	bridge          = "localpool0"
	nodeAddress     = "10.219.0.1" // of the bridge, so the node is the pods' gateway and is nowhere else to be reached
	podRange        = "10.219.0.0/22"
	podRangeBits    = "/22"
	firstPod        = "10.219.0.10"
	lastPod         = "10.219.3.250"
	serviceRange    = "10.220.0.0/16"
	serviceAddress  = "10.220.0.1" // of the Service `kubernetes`, always the first of the range
	serviceListener = serviceAddress + ":443"
	maxPods         = 250
	longestFolder   = 48 // sockets below it must fit into the kernel's 107 characters
	stateFile       = "cluster.json"
	cniPlugins      = "/usr/lib/cni"
	containerdSpace = "k8s.io"
)

// Cluster is one folder and what it says.
type Cluster struct {
	folder string
	port   int
	asked  int // the port that the environment names, if any
}

type state struct {
	Port int `json:"port"`
}

// find reads which folder is meant, and what a cluster in it has written down.
func find() (*Cluster, error) {
	folder := defaultFolder
	if asked := os.Getenv(folderVariable); asked != "" {
		folder = filepath.Clean(asked)
	}
	if !filepath.IsAbs(folder) || folder == "/" || len(folder) > longestFolder {
		return nil, fmt.Errorf("%s=%s cannot hold a cluster: it must be an absolute path of at most %d characters, as sockets lie deep below it",
			folderVariable, folder, longestFolder)
	}
	cluster := &Cluster{folder: folder, port: defaultPort}
	if asked := os.Getenv(portVariable); asked != "" {
		port, err := strconv.Atoi(asked)
		if err != nil || port < 1024 || port > 65000 {
			return nil, fmt.Errorf("%s=%s is not a port: give a number from 1024 to 65000; the four ports after it are used too", portVariable, asked)
		}
		cluster.port, cluster.asked = port, port
	}
	content, err := os.ReadFile(cluster.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return cluster, nil
	}
	if err != nil {
		return nil, err
	}
	var known state
	if err := json.Unmarshal(content, &known); err != nil {
		return cluster, fmt.Errorf("%s is damaged (%w): localpool-cluster down removes what is there", cluster.path(stateFile), err)
	}
	cluster.port = known.Port
	return cluster, nil
}

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.folder}, parts...)...)
}

func (c *Cluster) exists() bool {
	_, err := os.Stat(c.path(stateFile))
	return err == nil
}

func (c *Cluster) apiserverPort() int     { return c.port }
func (c *Cluster) kubeletPort() int       { return c.port + 1 }
func (c *Cluster) managerPort() int       { return c.port + 2 }
func (c *Cluster) schedulerPort() int     { return c.port + 3 }
func (c *Cluster) kubeletHealthPort() int { return c.port + 4 }

func (c *Cluster) kubeconfig() string       { return c.path("kubeconfig") }
func (c *Cluster) containerdSocket() string { return c.path("containerd", "containerd.sock") }
func (c *Cluster) containerdState() string  { return c.path("containerd", "state") }
func (c *Cluster) etcdSocket() string       { return c.path("etcd.sock") }

// claim makes the folder ours, so that `down` may remove it, and refuses one that holds something else.
func (c *Cluster) claim() error {
	if c.exists() {
		return nil
	}
	entries, err := os.ReadDir(c.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and holds no cluster that this tool made: empty it, or set %s to another folder", c.folder, folderVariable)
	}
	content, err := json.Marshal(state{Port: c.port})
	if err != nil {
		return err
	}
	return write(c.path(stateFile), content, 0o600)
}

// lock keeps two commands from working on one cluster at once. The kernel frees it when we end, however that is.
func (c *Cluster) lock() (*os.File, error) {
	deadline, told := time.Now().Add(3*time.Minute), false
	for {
		if err := os.MkdirAll(c.folder, 0o755); err != nil {
			return nil, err
		}
		folder, err := os.Open(c.folder)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// A `down` that we waited for has removed the folder; the lock is then one of a folder without a name.
			if sameFile(folder, c.folder) {
				return folder, nil
			}
			folder.Close()
			continue
		}
		folder.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", c.folder, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another localpool-cluster has been at work on %s for three minutes: end it, then run this again", c.folder)
		}
		if !told {
			say("another localpool-cluster is at work on %s; waiting for it", c.folder)
			told = true
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func sameFile(open *os.File, path string) bool {
	held, err := open.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(held, named)
}

// write replaces a file whole, so that a kill leaves the old or the new one.
func write(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, content, mode); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

func say(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "cluster: %s\n", strings.TrimSpace(fmt.Sprintf(format, values...)))
}
