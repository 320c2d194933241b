// Which processes are ours: their records on disk, and the proof that a number still means the same process.
package onenode

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Record is how a process was started, and which one it became. Pid 0: it was stopped on purpose.
type Record struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Log  string   `json:"log"`
	// Where in the log this start begins: what an earlier one said would mislead.
	LogFrom int64 `json:"logFrom"`
	Pid     int   `json:"pid"`
	// When it began, in clock ticks since the boot, and which boot: a number alone may be a stranger's by now.
	Began int64  `json:"began"`
	Boot  string `json:"boot"`
}

func (c *Cluster) recordPath(name string) string { return c.path("run", name+".json") }

func (c *Cluster) record(name string) (*Record, error) {
	content, err := os.ReadFile(c.recordPath(name))
	if err != nil {
		return nil, err
	}
	record := &Record{}
	return record, json.Unmarshal(content, record)
}

func (c *Cluster) keep(record *Record) error {
	content, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	return write(c.recordPath(record.Name), content, 0o600)
}

// alive says whether the recorded process, and no other with its number, is there. A zombie is not.
func (r *Record) alive() bool {
	if r == nil || r.Pid == 0 || r.Boot != bootID() {
		return false
	}
	began, state, err := processBegan(r.Pid)
	return err == nil && began == r.Began && state != 'Z' && state != 'X'
}

func bootID() string {
	content, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(content))
}

// processBegan reads state and start time. The command's name comes before them, in brackets, and may hold anything.
func processBegan(pid int) (int64, byte, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, err
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	began, err := strconv.ParseInt(string(fields[19]), 10, 64)
	return began, fields[0][0], err
}

// process is what /proc says about one of them.
type process struct {
	pid, parent int
	argv        []string
	marked      bool
}

// processes lists all of the machine, with those marked that carry our folder in their environment.
func (c *Cluster) processes() []process {
	entries, _ := os.ReadDir("/proc")
	mark := []byte(markVariable + "=" + c.folder)
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		folder := filepath.Join("/proc", entry.Name())
		stat, err := os.ReadFile(filepath.Join(folder, "stat"))
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if fields[0][0] == 'Z' {
			continue
		}
		parent, _ := strconv.Atoi(string(fields[1]))
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(folder, "environ"))
		one := process{pid: pid, parent: parent, argv: strings.Split(strings.TrimRight(string(command), "\x00"), "\x00")}
		for _, variable := range bytes.Split(environment, []byte{0}) {
			one.marked = one.marked || bytes.Equal(variable, mark)
		}
		found = append(found, one)
	}
	return found
}

// shims are the processes that hold containers for our containerd: they name its socket.
func (c *Cluster) shims(all []process) []process {
	var found []process
	for _, one := range all {
		if !strings.HasPrefix(filepath.Base(one.argv[0]), "containerd-shim") {
			continue
		}
		for _, argument := range one.argv {
			if argument == c.containerdSocket() {
				found = append(found, one)
				break
			}
		}
	}
	return found
}

// below gives every descendant, children before their own.
func below(all []process, parent int) []process {
	var found []process
	for _, one := range all {
		if one.parent == parent {
			found = append(append(found, one), below(all, one.pid)...)
		}
	}
	return found
}
