package sanity

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const victimEnv = "LOCALPOOL_SANITY_VICTIM"

// The test runs itself as the victim, which sets up one of everything and is then killed without a word.
func TestALabIsTidiedUpEvenIfItsTestIsKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "sanity: SKIPPED: the lab's own test: loop devices and mounts need root")
		t.Skip("loop devices and mounts need root")
	}
	if os.Getenv(victimEnv) != "" {
		beVictim(t)
	}

	victim := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), victimEnv+"=1")
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err == nil {
		err = victim.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	dir, found := strings.CutPrefix(strings.TrimSpace(line), "lab ")
	if err != nil || !found {
		t.Fatalf("the victim did not set up its lab: %q, %v", line, err)
	}
	l := lab{dir}
	defer func() { _ = l.sweep() }()

	loops, err1 := l.loops()
	mounts, err2 := l.mounts()
	processes, err3 := l.processes()
	if errors.Join(err1, err2, err3) != nil || len(loops) != 1 || len(mounts) != 1 || len(processes) != 1 {
		t.Fatalf("want one of each before the kill: loops %q, mounts %q, processes %v (%v)", loops, mounts, processes, errors.Join(err1, err2, err3))
	}

	if err := victim.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone := eventually(time.Minute, func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
	loops, _ = l.loops()
	mounts, _ = l.mounts()
	processes, _ = l.processes()
	if !gone || len(loops)+len(mounts)+len(processes) > 0 {
		t.Errorf("left after the kill: directory %t, loops %q, mounts %q, processes %v", !gone, loops, mounts, processes)
	}
}

func beVictim(t *testing.T) {
	l := newLab(t)
	device := l.disk(t, "disk-00.img", 64*mib)
	if err := os.Mkdir(l.path("a mount"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v: %s", err, out)
	}
	if err := syscall.Mount(device, l.path("a mount"), "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := l.start(exec.Command("sleep", "600")); err != nil {
		t.Fatal(err)
	}
	fmt.Println("lab", l.dir)
	select {}
}
