// Starting, awaiting and stopping one process of the cluster.
package onenode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	pollEvery    = 100 * time.Millisecond
	readyWithin  = 90 * time.Second
	logTailLines = 15
)

func (c *Cluster) log(name string) string { return c.path("log", name+".log") }

// launch starts what the record says, in a session of its own, and records what it became.
func (c *Cluster) launch(record *Record) error {
	if err := os.MkdirAll(filepath.Dir(record.Log), 0o755); err != nil {
		return err
	}
	output, err := os.OpenFile(record.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	if record.LogFrom, err = output.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	command := exec.Command(record.Argv[0], record.Argv[1:]...)
	command.Dir, command.Env = c.folder, record.Env
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", record.Name, err)
	}
	record.Pid, record.Boot = command.Process.Pid, bootID()
	record.Began, _, err = processBegan(record.Pid)
	if err == nil {
		err = c.keep(record)
	}
	if err != nil {
		command.Process.Kill()
		return fmt.Errorf("record %s: %w", record.Name, err)
	}
	go command.Wait() // so that one that ends while we are here is seen to have ended
	return nil
}

// ensure starts a service that does not run, and leaves one that does.
func (c *Cluster) ensure(service Service) (*Record, error) {
	record, err := c.record(service.name)
	if err == nil && record.alive() {
		return record, nil
	}
	if err := portsFree(service); err != nil {
		return nil, err
	}
	record = &Record{
		Name: service.name,
		Argv: service.argv,
		Env:  append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.folder, markVariable + "=" + c.folder}, service.env...),
		Log:  c.log(service.name),
	}
	return record, c.launch(record)
}

// await waits until a service is ready; where it ends or takes too long, the error holds its last words.
func (c *Cluster) await(ctx context.Context, service Service, record *Record) error {
	deadline := time.Now().Add(readyWithin)
	for {
		// First, as a stranger on the same port may answer for a process that is gone.
		alive := record.alive()
		var reason error
		if alive {
			if reason = service.ready(ctx); reason == nil {
				return nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !alive:
			return fmt.Errorf("%s ended while it was starting. Its last words, from %s:\n%s", service.name, record.Log, record.lastLines())
		case time.Now().After(deadline):
			return fmt.Errorf("%s is not ready after %s: %w. Its last words, from %s:\n%s", service.name, readyWithin, reason, record.Log, record.lastLines())
		}
		time.Sleep(pollEvery)
	}
}

func (r *Record) lastLines() string {
	content, err := os.ReadFile(r.Log)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	content = content[min(r.LogFrom, int64(len(content))):]
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	lines = lines[max(0, len(lines)-logTailLines):]
	return "  " + strings.Join(lines, "\n  ")
}

// end stops a recorded process: by request, then, after `gracePeriod`, by force. One that is gone, or whose number
// belongs to another process by now, is left alone.
func end(record *Record, gracePeriod time.Duration) error {
	if !record.alive() {
		return nil
	}
	// The handle is taken before the second look, so that the signal cannot reach a successor.
	handle, err := os.FindProcess(record.Pid)
	if err != nil {
		return err
	}
	defer handle.Release()
	if !record.alive() {
		return nil
	}
	for _, step := range []struct {
		signal      syscall.Signal
		gracePeriod time.Duration
	}{{syscall.SIGTERM, gracePeriod}, {syscall.SIGKILL, 10 * time.Second}} {
		if err := handle.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s (process %d): %w", record.Name, record.Pid, err)
		}
		deadline := time.Now().Add(step.gracePeriod)
		for record.alive() && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
		if !record.alive() {
			return nil
		}
	}
	return fmt.Errorf("%s (process %d) does not end, even when killed: see /proc/%d/stack for what it waits for", record.Name, record.Pid, record.Pid)
}

// run is for the small commands of the machine; what they say goes into the error.
func run(ctx context.Context, name string, arguments ...string) error {
	output, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(arguments, " "), err, bytes.TrimSpace(output))
	}
	return nil
}
