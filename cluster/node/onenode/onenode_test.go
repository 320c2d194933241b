// The promises that can be held without a cluster; cluster/check holds the others on a real one.
package onenode

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sleeper(t *testing.T) (*exec.Cmd, *Record) {
	t.Helper()
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Kill(); command.Wait() })
	began, _, err := processBegan(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return command, &Record{Name: "sleeper", Pid: command.Process.Pid, Began: began, Boot: bootID()}
}

func TestAProcessThatOnlySharesTheNumberIsNeverStopped(t *testing.T) {
	command, record := sleeper(t)
	for _, stranger := range []Record{
		{Pid: record.Pid, Began: record.Began - 1, Boot: record.Boot},
		{Pid: record.Pid, Began: record.Began, Boot: "another boot"},
	} {
		if stranger.alive() {
			t.Errorf("%+v passes for process %d", stranger, record.Pid)
		}
		if err := end(&stranger, 0); err != nil {
			t.Error(err)
		}
	}
	if err := command.Process.Signal(syscall.Signal(0)); err != nil || !record.alive() {
		t.Error("a stranger was stopped")
	}
}

func TestAProcessThatIgnoresTheRequestIsStoppedByForce(t *testing.T) {
	command := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go command.Wait()
	output.Read(make([]byte, 1)) // the trap is set
	began, _, err := processBegan(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	record := &Record{Name: "stubborn", Pid: command.Process.Pid, Began: began, Boot: bootID()}
	if err := end(record, 300*time.Millisecond); err != nil || record.alive() {
		t.Errorf("still there: %v", err)
	}
}

func TestAFolderOfSomebodyElseIsNeitherTakenNorRemoved(t *testing.T) {
	folder := t.TempDir()
	theirs := filepath.Join(folder, "theirs")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := &Cluster{folder: folder, port: defaultPort}
	if err := cluster.claim(); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("claim says %v", err)
	}
	if os.Geteuid() == 0 {
		if err := cluster.down(); err == nil || !strings.Contains(err.Error(), "no cluster that this tool made") {
			t.Errorf("down says %v", err)
		}
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}

func TestAFolderWithAMountBelowIsNotRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	cluster := &Cluster{folder: t.TempDir(), port: defaultPort}
	if err := cluster.claim(); err != nil {
		t.Fatal(err)
	}
	// With a blank, which the kernel's table of mounts writes in another way.
	data := cluster.path("of a tenant")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(data, syscall.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(data, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cluster.removeFolder(); err == nil || !strings.Contains(err.Error(), "still mounted") {
		t.Errorf("removal says %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "file")); err != nil {
		t.Error(err)
	}
	if err := cluster.unmount(); err != nil {
		t.Error(err)
	}
	if err := cluster.removeFolder(); err != nil {
		t.Error(err)
	}
}

func TestAPortThatIsTakenIsNamedWithWhoHasIt(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = portsFree(Service{name: "kube-apiserver", ports: []string{listener.Addr().String()}})
	name, _ := os.ReadFile("/proc/self/comm")
	if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(string(name))) || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("says %v", err)
	}
}

func TestTheErrorOfAProcessThatEndsHoldsOnlyItsOwnLastWords(t *testing.T) {
	cluster := &Cluster{folder: t.TempDir(), port: defaultPort}
	service := Service{name: "broken", argv: []string{"sh", "-c", "echo the reason; exit 3"},
		ready: func(context.Context) error { return errors.New("not yet") }}
	if err := write(cluster.log("broken"), []byte("words of yesterday\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	record, err := cluster.ensure(service)
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.await(t.Context(), service, record)
	if err == nil || !strings.Contains(err.Error(), "the reason") || strings.Contains(err.Error(), "yesterday") {
		t.Errorf("says %v", err)
	}
}

func TestAnImageIsTheSameBytesEachTimeAndNamesWhatIsInIt(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("of a kind"), 0o755); err != nil {
		t.Fatal(err)
	}
	one := image{name: "localpool.dev/x:dev", programs: map[string]string{"bin/x": program},
		links: map[string]string{"bin/y": "/bin/x", "bin/z": "/bin/x"}, folders: []string{"bin"}}
	var first, second bytes.Buffer
	if err := one.archive(&first); err != nil {
		t.Fatal(err)
	}
	if err := one.archive(&second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one image differ")
	}
	parts := map[string][]byte{}
	in := tar.NewReader(&first)
	for {
		header, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if parts[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
	// What a name leads to must be what the name was made from, all the way down.
	follow := func(digest string, into any) {
		t.Helper()
		content := parts["blobs/"+strings.Replace(digest, ":", "/", 1)]
		if describe("", content).Digest != digest {
			t.Fatalf("nothing of digest %s is in the archive", digest)
		}
		if into != nil {
			if err := json.Unmarshal(content, into); err != nil {
				t.Fatal(err)
			}
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(parts["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	follow(index.Manifests[0].Digest, &manifest)
	follow(manifest.Config.Digest, nil)
	follow(manifest.Layers[0].Digest, nil)
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != one.name {
		t.Errorf("it is called %q", name)
	}
}
