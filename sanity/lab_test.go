package sanity

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lab is a directory of our own and all that hangs on it: image files, the loop devices on them, mounts, processes.
// What belongs to it is found by looking at the machine, never by a list, so that a stop at any moment can be tidied up.
type lab struct{ dir string }

// Roles of this binary other than running tests.
const (
	roleEnv     = "LOCALPOOL_SANITY_ROLE"
	labEnv      = "LOCALPOOL_SANITY_LAB"  // marks each process of a lab
	tidyEnv     = "LOCALPOOL_SANITY_TIDY" // tells the janitor which lab it is for; it does not belong to it itself
	roleJanitor = "janitor"
	roleSuite   = "suite"
)

// newLab makes a lab that is gone after the test, and also if this process is killed.
func newLab(t testing.TB) lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpool-sanity-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatalf("no directory for the lab: %v", err)
	}
	l := lab{dir}

	janitor := exec.Command("/proc/self/exe")
	janitor.Env = append(os.Environ(), roleEnv+"="+roleJanitor, tidyEnv+"="+dir)
	janitor.Stdout, janitor.Stderr = os.Stderr, os.Stderr
	janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := janitor.StdinPipe()
	if err == nil {
		err = janitor.Start()
	}
	if err != nil {
		t.Fatalf("no janitor for the lab: %v", err)
	}

	t.Cleanup(func() {
		if err := l.sweep(); err != nil {
			t.Errorf("the lab is not clean: %v", err)
		}
		alive.Close()
		if err := janitor.Wait(); err != nil {
			t.Errorf("janitor: %v", err)
		}
	})
	return l
}

// runJanitor waits until the test that started it is gone, however that came, and then tidies up what is left.
func runJanitor() int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	_, _ = io.Copy(io.Discard, os.Stdin)
	l := lab{os.Getenv(tidyEnv)}
	if _, err := os.Stat(l.dir); errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err := l.sweep(); err != nil {
		fmt.Fprintf(os.Stderr, "sanity: stopped midway, and %s could not be tidied up: %v\n", l.dir, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "sanity: stopped midway; %s and its loop devices are tidied up\n", l.dir)
	return 0
}

func (l lab) path(name string) string { return filepath.Join(l.dir, name) }

// disk makes a sparse image of that size and a loop device on it.
func (l lab) disk(t testing.TB, name string, size int64) string {
	t.Helper()
	image := l.path(name)
	file, err := os.Create(image)
	if err == nil {
		err = errors.Join(file.Truncate(size), file.Close())
	}
	if err != nil {
		t.Fatalf("image for a disk: %v", err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup of %s: %v: %s", image, err, out)
	}
	device := strings.TrimSpace(string(out))
	// An earlier user of this loop device may have left the kernel partitions that are not on our disk.
	_ = exec.Command("partx", "-d", device).Run()
	return device
}

// start runs a command in a process group of its own (Ctrl-C is the janitor's business), marked as the lab's.
func (l lab) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(cmd.Environ(), labEnv+"="+l.dir)
	return cmd.Start()
}

// sweep ends, unmounts, detaches and removes whatever is left. It may be repeated.
func (l lab) sweep() error {
	err := errors.Join(l.killProcesses(), l.unmountAll(), l.detachLoops())
	if mounts, mountErr := l.mounts(); mountErr != nil || len(mounts) > 0 {
		return errors.Join(err, mountErr, fmt.Errorf("still mounted, so nothing is removed: %q", mounts))
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

func (l lab) killProcesses() error {
	var err error
	gone := eventually(time.Minute, func() bool {
		var running []int
		if running, err = l.processes(); err != nil {
			return false
		}
		for _, pid := range running {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(running) == 0
	})
	if !gone && err == nil {
		err = errors.New("processes outlive SIGKILL")
	}
	return err
}

// processes lists what was started in the lab, with all that it started: each has the lab in its environment. (A zombie
// has no environment, and needs no killing.)
func (l lab) processes() ([]int, error) {
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(environ)+"\x00", "\x00"+labEnv+"="+l.dir+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found, nil
}

func (l lab) unmountAll() error {
	mounts, err := l.mounts()
	for i := len(mounts) - 1; i >= 0; i-- {
		if busy := syscall.Unmount(mounts[i], 0); busy != nil {
			err = errors.Join(err, wrap("unmount "+mounts[i], syscall.Unmount(mounts[i], syscall.MNT_DETACH)))
		}
	}
	return err
}

// mounts lists the mount points below the lab, outer ones first.
func (l lab) mounts() ([]string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		if columns := strings.Fields(line); len(columns) > 4 {
			if target := unescape(columns[4]); strings.HasPrefix(target, l.dir+"/") {
				found = append(found, target)
			}
		}
	}
	return found, nil
}

// unescape turns the kernel's \040 and the like back into characters.
func unescape(path string) string {
	var plain strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if code, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				plain.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		plain.WriteByte(path[i])
	}
	return plain.String()
}

func (l lab) detachLoops() error {
	loops, err := l.loops()
	for _, device := range loops {
		// Detaching would leave partitions that were added by hand behind, on a loop device that others use next.
		if partitions, _ := filepath.Glob(filepath.Join("/sys/block", filepath.Base(device), filepath.Base(device)+"p*")); len(partitions) > 0 {
			out, partxErr := exec.Command("partx", "-d", device).CombinedOutput()
			err = errors.Join(err, wrap("partx -d "+device+": "+string(out), partxErr))
		}
		out, detachErr := exec.Command("losetup", "-d", device).CombinedOutput()
		err = errors.Join(err, wrap("losetup -d "+device+": "+string(out), detachErr))
	}
	// A busy loop device is detached only when its last user is gone.
	if !eventually(time.Minute, func() bool { left, lookErr := l.loops(); return lookErr == nil && len(left) == 0 }) {
		left, lookErr := l.loops()
		err = errors.Join(err, lookErr, fmt.Errorf("loop devices still attached: %q", left))
	}
	return err
}

// loops lists the loop devices on files of the lab.
func (l lab) loops() ([]string, error) {
	records, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, record := range records {
		backing, err := os.ReadFile(record)
		if err == nil && strings.HasPrefix(string(backing), l.dir+"/") {
			found = append(found, filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(record)))))
		}
	}
	return found, nil
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.TrimSpace(doing), err)
}

func eventually(within time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if holds() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
