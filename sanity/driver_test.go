package sanity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// driver is a running localpool, of one process or of two, and a client of its sockets.
type driver struct {
	processes        []*process // in the order in which they are to be stopped
	node, controller endpoint   // one and the same where one process serves all
	objects          *objects   // what it is to leave clean in the API server; nil where there is none
}

// endpoint is one socket.
type endpoint struct {
	address string
	conn    *grpc.ClientConn
}

// connect makes a client of a socket, and waits until Probe answers ready there.
func connect(t testing.TB, p *process, socket string) endpoint {
	t.Helper()
	// gRPC takes the authority from a unix:/// address to be "localhost"; from a bare path, servers refuse it.
	s := endpoint{address: "unix://" + socket}
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s.conn = conn
	p.until(t, time.Minute, "Probe's answer that it is ready", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{})
		if err == nil && !answer.GetReady().GetValue() {
			err = errors.New("it answers that it is not ready")
		}
		return err
	})
	return s
}

// startStandalone runs `localpool standalone` on a set document.
func startStandalone(t testing.TB, l lab, binary, sets string) *driver {
	t.Helper()
	if err := os.WriteFile(l.path("sets.yaml"), []byte(sets), 0o600); err != nil {
		t.Fatal(err)
	}
	p := l.run(t, "standalone", exec.Command(binary, "standalone", "--socket", l.path("csi.sock"), "--state-dir", l.path("state"),
		"--sets", l.path("sets.yaml"), "--node-name", "sanity", "--device-min-age", "0s"))
	s := connect(t, p, l.path("csi.sock"))
	return &driver{processes: []*process{p}, node: s, controller: s}
}

// dead says which of the processes ended, or nil while all run.
func (d *driver) dead() error {
	var err error
	for _, p := range d.processes {
		err = errors.Join(err, p.dead())
	}
	return err
}

func (d *driver) stop() error {
	var err error
	for _, p := range d.processes {
		err = errors.Join(err, p.stop())
	}
	return err
}

// kill ends what is left of it, at once.
func (d *driver) kill() {
	for _, p := range d.processes {
		if p.dead() == nil {
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
	}
}

func (d *driver) logTail() string {
	var tails []string
	for _, p := range d.processes {
		tails = append(tails, p.logTail())
	}
	return strings.Join(tails, "\n")
}

func (d *driver) capacity(t testing.TB, capability *csi.VolumeCapability) (*csi.GetCapacityResponse, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return csi.NewControllerClient(d.controller.conn).GetCapacity(ctx, &csi.GetCapacityRequest{
		Parameters: parameters, VolumeCapabilities: []*csi.VolumeCapability{capability},
	})
}

// offer waits until the pool offers that many volumes of the largest size, which is at least so much.
func (d *driver) offer(t testing.TB, volumes, atLeast int64, capability *csi.VolumeCapability) *csi.GetCapacityResponse {
	t.Helper()
	var answer *csi.GetCapacityResponse
	var err error
	enough := eventually(time.Minute, func() bool {
		answer, err = d.capacity(t, capability)
		size := answer.GetMaximumVolumeSize().GetValue()
		return err == nil && size >= atLeast && answer.GetAvailableCapacity() >= volumes*size || d.dead() != nil
	})
	if !enough || d.dead() != nil {
		t.Fatalf("GetCapacity does not offer %d volumes of one size, at least %d bytes, within a minute: %v, error %v, driver %v\n%s",
			volumes, atLeast, answer, err, d.dead(), d.logTail())
	}
	return answer
}

// capabilities lists what the driver advertises, as service/NAME.
func (d *driver) capabilities(t *testing.T) map[string]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	plugin, err1 := csi.NewIdentityClient(d.controller.conn).GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	onNode, err2 := csi.NewIdentityClient(d.node.conn).GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	controller, err3 := csi.NewControllerClient(d.controller.conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	node, err4 := csi.NewNodeClient(d.node.conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatalf("the driver does not say what it can do: %v", err)
	}
	// CSI: they are those of the plugin as a whole, whatever an instance serves.
	if here, there := services(onNode), services(plugin); !maps.Equal(here, there) {
		t.Errorf("the node's socket advertises %v, the controller's %v", slices.Sorted(maps.Keys(here)), slices.Sorted(maps.Keys(there)))
	}
	has := services(plugin)
	for _, c := range controller.GetCapabilities() {
		has["controller/"+c.GetRpc().GetType().String()] = true
	}
	for _, c := range node.GetCapabilities() {
		has["node/"+c.GetRpc().GetType().String()] = true
	}
	return has
}

func services(plugin *csi.GetPluginCapabilitiesResponse) map[string]bool {
	has := map[string]bool{}
	for _, c := range plugin.GetCapabilities() {
		if c.GetService() != nil {
			has["plugin/"+c.GetService().GetType().String()] = true
		}
	}
	return has
}

// clean says what is left of volumes, or nil: none is listed, and all space is on offer that was there before.
func (d *driver) clean(t testing.TB, before *csi.GetCapacityResponse, capability *csi.VolumeCapability) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := csi.NewControllerClient(d.controller.conn).ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil {
		return wrap("ListVolumes", err)
	}
	if left := len(list.GetEntries()); left > 0 {
		return fmt.Errorf("ListVolumes shows %d volumes", left)
	}
	now, err := d.capacity(t, capability)
	if err != nil {
		return wrap("GetCapacity", err)
	}
	if now.GetAvailableCapacity() != before.GetAvailableCapacity() || now.GetMaximumVolumeSize().GetValue() != before.GetMaximumVolumeSize().GetValue() {
		return fmt.Errorf("GetCapacity shows %v, and before it was %v", now, before)
	}
	if d.objects != nil {
		return d.objects.clean(ctx)
	}
	return nil
}
