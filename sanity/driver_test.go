package sanity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// driver is a running `localpool standalone`, and a client of its socket.
type driver struct {
	cmd     *exec.Cmd
	exited  chan struct{}
	exit    error
	log     string
	address string
	conn    *grpc.ClientConn
}

// startDriver runs the binary on a set document, and returns once Probe answers ready.
func startDriver(t *testing.T, l lab, binary, sets string) *driver {
	t.Helper()
	if err := os.WriteFile(l.path("sets.yaml"), []byte(sets), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(l.path("driver.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	// gRPC takes the authority from a unix:/// address to be "localhost"; from a bare path, servers refuse it.
	d := &driver{exited: make(chan struct{}), log: log.Name(), address: "unix://" + l.path("csi.sock")}
	d.cmd = exec.Command(binary, "standalone", "--socket", l.path("csi.sock"), "--state-dir", l.path("state"),
		"--sets", l.path("sets.yaml"), "--node-name", "sanity", "--device-min-age", "0s")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := l.start(d.cmd); err != nil {
		t.Fatalf("start %s: %v", binary, err)
	}
	go func() {
		d.exit = d.cmd.Wait()
		close(d.exited)
	}()

	d.conn, err = grpc.NewClient(d.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conn.Close() })

	var last error
	ready := eventually(30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer, err := csi.NewIdentityClient(d.conn).Probe(ctx, &csi.ProbeRequest{})
		last = err
		return err == nil && answer.GetReady().GetValue() || d.dead() != nil
	})
	if err := d.dead(); err != nil {
		t.Fatalf("%v\n%s", err, d.logTail())
	}
	if !ready {
		t.Fatalf("Probe does not answer ready within 30 s (last error: %v)\n%s", last, d.logTail())
	}
	return d
}

// dead says how the driver ended, or nil while it runs.
func (d *driver) dead() error {
	select {
	case <-d.exited:
		return fmt.Errorf("the driver ended by itself: %v", d.cmd.ProcessState)
	default:
		return nil
	}
}

// stop asks the driver to end, as an orchestrator does, and tells whether it did so in good order.
func (d *driver) stop() error {
	if err := d.dead(); err != nil {
		return err
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("SIGTERM to the driver: %w", err)
	}
	select {
	case <-d.exited:
		return wrap("the driver's end after SIGTERM", d.exit)
	case <-time.After(10 * time.Second):
		return errors.New("the driver runs on for 10 s after SIGTERM")
	}
}

func (d *driver) logTail() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "the driver's last lines:\n  " + strings.Join(lines[max(0, len(lines)-40):], "\n  ")
}

// largest waits until the pool offers that many volumes of the largest size, which is at least so much, and returns it.
func (d *driver) largest(t *testing.T, volumes, atLeast int64, capability *csi.VolumeCapability) int64 {
	t.Helper()
	var answer *csi.GetCapacityResponse
	var err error
	enough := eventually(time.Minute, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		answer, err = csi.NewControllerClient(d.conn).GetCapacity(ctx, &csi.GetCapacityRequest{
			Parameters: parameters, VolumeCapabilities: []*csi.VolumeCapability{capability},
		})
		size := answer.GetMaximumVolumeSize().GetValue()
		return err == nil && size >= atLeast && answer.GetAvailableCapacity() >= volumes*size || d.dead() != nil
	})
	if !enough || d.dead() != nil {
		t.Fatalf("GetCapacity does not come to offer %d volumes of one size, at least %d bytes, within a minute: %v, error %v, driver %v\n%s",
			volumes, atLeast, answer, err, d.dead(), d.logTail())
	}
	return answer.GetMaximumVolumeSize().GetValue()
}

// capabilities lists what the driver advertises, as service/NAME.
func (d *driver) capabilities(t *testing.T) map[string]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	plugin, err1 := csi.NewIdentityClient(d.conn).GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	controller, err2 := csi.NewControllerClient(d.conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	node, err3 := csi.NewNodeClient(d.conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatalf("the driver does not say what it can do: %v", err)
	}
	has := map[string]bool{}
	for _, c := range plugin.GetCapabilities() {
		if c.GetService() != nil {
			has["plugin/"+c.GetService().GetType().String()] = true
		}
	}
	for _, c := range controller.GetCapabilities() {
		has["controller/"+c.GetRpc().GetType().String()] = true
	}
	for _, c := range node.GetCapabilities() {
		has["node/"+c.GetRpc().GetType().String()] = true
	}
	return has
}

// volumes counts what ListVolumes shows.
func (d *driver) volumes(t *testing.T) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := csi.NewControllerClient(d.conn).ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil {
		t.Errorf("ListVolumes after the suite: %v", err)
	}
	return len(list.GetEntries())
}
