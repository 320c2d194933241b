// The commands that people and tests type.
package onenode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const usage = `usage: localpool-cluster COMMAND
  up                     bring a Kubernetes cluster of one node up; says so if there is one
  down                   take it down, with everything that belongs to it
  status                 what runs; fails unless all of it does
  stop [--kill] NAME     end one process, and leave it ended; --kill without asking it first
  start NAME             start it again, as it was
  restart [--kill] NAME  both; a restarted containerd leaves its containers running
  load-image ARCHIVE...  load images that buildah or docker saved
  NAME [ARGUMENT...]     run etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kubectl itself
The state is in ` + defaultFolder + `, or where ` + folderVariable + ` says.`

// Command does what the words say.
func Command(words []string) error {
	if len(words) == 0 || words[0] == "help" || words[0] == "--help" || words[0] == "-h" {
		fmt.Println(usage)
		return nil
	}
	cluster, err := find()
	// What is damaged can still be taken down.
	if err != nil && (cluster == nil || words[0] != "down") {
		return err
	}
	switch words[0] {
	case "up":
		return cluster.up()
	case "down":
		return cluster.down()
	case "status":
		return cluster.status()
	case "load-image":
		return cluster.loadArchives(words[1:])
	case "stop", "start", "restart":
		return cluster.one(words[0], words[1:])
	}
	return fmt.Errorf("there is no command %q\n%s", words[0], usage)
}

func (c *Cluster) none() error {
	return fmt.Errorf("no cluster in %s: make cluster-up brings one up", c.folder)
}

func (c *Cluster) status() error {
	if !c.exists() {
		return c.none()
	}
	ctx := context.Background()
	var wrong []string
	// The commands are as recorded; here only names and questions are wanted.
	for _, service := range c.services(&Programs{}) {
		record, err := c.record(service.name)
		switch {
		case err != nil:
			fmt.Printf("%-24s never started\n", service.name)
			wrong = append(wrong, service.name)
		case record.Pid == 0:
			fmt.Printf("%-24s stopped\n", service.name)
			wrong = append(wrong, service.name)
		case !record.alive():
			fmt.Printf("%-24s ended by itself; see %s\n", service.name, record.Log)
			wrong = append(wrong, service.name)
		default:
			fmt.Printf("%-24s process %d\n", service.name, record.Pid)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("not running: %s", strings.Join(wrong, ", "))
	}
	if err := c.nodeReady(ctx); err != nil {
		return err
	}
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("node %s is ready, %d pods, KUBECONFIG=%s\n", NodeName, len(pods), c.kubeconfig())
	return nil
}

// one stops, starts or restarts a single process by its record.
func (c *Cluster) one(verb string, words []string) error {
	kill := len(words) > 0 && words[0] == "--kill" && verb != "start"
	if kill {
		words = words[1:]
	}
	if !c.exists() {
		return c.none()
	}
	if len(words) != 1 {
		return fmt.Errorf("%s needs the name of one process: %s", verb, strings.Join(c.names(), ", "))
	}
	name := words[0]
	if long, short := shortNames[name]; short {
		name = long
	}
	lock, err := c.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	var programs *Programs
	if programs, err = findPrograms(); err != nil {
		return err
	}
	for _, service := range c.services(programs) {
		if service.name != name {
			continue
		}
		record, err := c.record(name)
		if err != nil {
			return fmt.Errorf("%s was never started: make cluster-up starts it", name)
		}
		if verb != "start" {
			if kill {
				service.stop = 0
			}
			if err := c.halt(record, service); err != nil {
				return err
			}
		}
		if verb != "stop" {
			return c.resume(record, service)
		}
		return nil
	}
	return fmt.Errorf("no process is called %q: they are %s", name, strings.Join(c.names(), ", "))
}

func (c *Cluster) halt(record *Record, service Service) error {
	begun := time.Now()
	if err := end(record, service.stop); err != nil {
		return err
	}
	record.Pid = 0
	if err := c.keep(record); err != nil {
		return err
	}
	say("%s stopped after %.1f s", record.Name, time.Since(begun).Seconds())
	return nil
}

func (c *Cluster) resume(record *Record, service Service) error {
	if record.alive() {
		return errors.New(record.Name + " runs already")
	}
	begun := time.Now()
	if err := portsFree(service); err != nil {
		return err
	}
	if err := c.launch(record); err != nil {
		return err
	}
	if err := c.await(context.Background(), service, record); err != nil {
		return err
	}
	say("%s ready after %.1f s", record.Name, time.Since(begun).Seconds())
	return nil
}

func (c *Cluster) names() []string {
	var names []string
	for _, service := range c.services(&Programs{}) {
		names = append(names, service.name)
	}
	return names
}
