package sanity

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs in a lab until it is stopped, with a log there.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	exit   error
	log    string
}

// run starts a program, which must be there until somebody stops it.
func (l lab) run(t testing.TB, name string, cmd *exec.Cmd) *process {
	t.Helper()
	log, err := os.Create(l.path(name + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &process{name: name, cmd: cmd, exited: make(chan struct{}), log: log.Name()}
	cmd.Stdout, cmd.Stderr = log, log
	if err := l.start(cmd); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	go func() {
		p.exit = cmd.Wait()
		close(p.exited)
	}()
	return p
}

// until waits for what a process is started for, and ends the test where it does not come.
func (p *process) until(t testing.TB, limit time.Duration, what string, holds func() error) {
	t.Helper()
	var last error
	came := eventually(limit, func() bool {
		last = holds()
		return last == nil || p.dead() != nil
	})
	if err := p.dead(); err != nil {
		t.Fatalf("%v\n%s", err, p.logTail())
	}
	if !came {
		t.Fatalf("%s: %s does not come within %v (last: %v)\n%s", p.name, what, limit, last, p.logTail())
	}
}

// dead says how the process ended, or nil while it runs.
func (p *process) dead() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended by itself: %v", p.name, p.cmd.ProcessState)
	default:
		return nil
	}
}

// stop asks the process to end, as an orchestrator does, and tells whether it did so in good order.
func (p *process) stop() error {
	if err := p.dead(); err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("SIGTERM to %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		return wrap("the end of "+p.name+" after SIGTERM", p.exit)
	case <-time.After(time.Minute):
		return errors.New(p.name + " runs on for a minute after SIGTERM")
	}
}

func (p *process) logTail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(no log of %s: %v)", p.name, err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "the last lines of " + p.name + ":\n  " + strings.Join(lines[max(0, len(lines)-40):], "\n  ")
}
