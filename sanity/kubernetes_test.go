package sanity

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	clusterEnv = "LOCALPOOL_CLUSTER_BIN" // localpool-cluster, which is etcd and kube-apiserver
	namespace  = "localpool"             // of the controller's lease
	objectsAt  = "/apis/localpool.dev/v1alpha1"
	setsAt     = "/apis/local.storage.openshift.io/v1alpha1/namespaces/default/localvolumesets"
)

// onKubernetes brings up an API server with our kinds of objects, for drivers to run against.
func onKubernetes(t testing.TB, binary, program string) *apiserver {
	t.Helper()
	begun := time.Now()
	a := startAPIServer(t, program)
	apply := exec.Command(binary, "crds", "--apply")
	apply.Env = append(os.Environ(), "KUBECONFIG="+a.kubeconfig(asTest))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("localpool crds --apply: %v\n%s", err, out)
	}
	a.create(t, "/api/v1/namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
	fmt.Printf("\n=== etcd, kube-apiserver and our kinds of objects are there after %.1f s\n", time.Since(begun).Seconds())
	return a
}

// objects are those of one driver.
type objects struct {
	api  *apiserver
	node string
	free int64 // what the node's disks had, before there was any volume
}

// startOnKubernetes runs `localpool node` and `localpool controller` for a node that is made for them. All of their objects
// go with the test, which fails where something holds on to them.
func startOnKubernetes(t testing.TB, l lab, binary string, a *apiserver, sets string) *driver {
	t.Helper()
	o := &objects{api: a, node: strings.TrimPrefix(filepath.Base(l.dir), "localpool-")}
	a.create(t, "/api/v1/nodes", fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {topology.localpool.dev/node: %[1]s}}\n", o.node))
	t.Cleanup(func() { a.remove(t, "/api/v1/nodes/"+o.node) })
	a.create(t, setsAt, sets)
	t.Cleanup(func() { a.remove(t, setsAt+"/sanity") })

	localpool := func(role string, arguments ...string) *process {
		cmd := exec.Command(binary, append([]string{role, "--http", fmt.Sprintf("127.0.0.1:%d", freePort(t))}, arguments...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+a.kubeconfig(role))
		return l.run(t, role, cmd)
	}
	node := localpool(asNode, "--node-name", o.node, "--state-dir", l.path("state"), "--kubelet-dir", l.path("kubelet"), "--device-min-age", "0s")
	t.Cleanup(func() { a.remove(t, objectsAt+"/devicepools/"+o.node) })
	controller := localpool(asController, "--namespace", namespace, "--pod-name", o.node, "--socket", l.path("controller.sock"))
	d := &driver{processes: []*process{controller, node}, objects: o}
	t.Cleanup(d.kill) // or the agent would write its objects again
	d.node = connect(t, node, l.path("kubelet/plugins/csi.localpool.dev/csi.sock"))
	d.controller = connect(t, controller, l.path("controller.sock"))
	return d
}

// pool is what a DevicePool says of its disks.
type pool struct {
	Status struct {
		VolumeCount int64
		Disks       []struct{ Free, Erasing int64 }
	}
}

func (p pool) free() (free, erasing int64) {
	for _, disk := range p.Status.Disks {
		free, erasing = free+disk.Free, erasing+disk.Erasing
	}
	return free, erasing
}

// remember takes down what is free before there is any volume.
func (o *objects) remember(t testing.TB) {
	t.Helper()
	var p pool
	if _, err := o.api.call(t.Context(), http.MethodGet, objectsAt+"/devicepools/"+o.node, "", &p); err != nil {
		t.Fatal(err)
	}
	if o.free, _ = p.free(); o.free == 0 {
		t.Fatalf("DevicePool %s has no free space before the suite: %+v", o.node, p)
	}
}

// clean says what is left of volumes in the API server, or nil.
func (o *objects) clean(ctx context.Context) error {
	var volumes struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if _, err := o.api.call(ctx, http.MethodGet, objectsAt+"/poolvolumes", "", &volumes); err != nil {
		return err
	}
	if len(volumes.Items) > 0 {
		return fmt.Errorf("there are %d PoolVolumes: %v", len(volumes.Items), volumes.Items)
	}
	var p pool
	if _, err := o.api.call(ctx, http.MethodGet, objectsAt+"/devicepools/"+o.node, "", &p); err != nil {
		return err
	}
	if free, erasing := p.free(); free != o.free || erasing > 0 || p.Status.VolumeCount > 0 {
		return fmt.Errorf("DevicePool %s has %d bytes free, %d being erased, and %d volumes; before there were %d bytes free",
			o.node, free, erasing, p.Status.VolumeCount, o.free)
	}
	return nil
}
