// Whether the addresses of a service are free, and who has them where they are not.
package onenode

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// portsFree waits a little, as a process that just ended may still be giving its port back.
func portsFree(service Service) error {
	for _, address := range service.ports {
		deadline := time.Now().Add(3 * time.Second)
		for {
			listener, err := listen(address)
			if err == nil {
				listener.Close()
				break
			}
			if !errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("%s cannot listen on %s: %w", service.name, address, err)
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s cannot listen on %s: the port is taken by %s; stop that%s",
					service.name, address, holder(address), instead(address))
			}
			time.Sleep(pollEvery)
		}
	}
	return nil
}

// listen: before there is a bridge, its addresses can only be taken by who listens on all of them. An address of the
// loopback that nobody uses by itself shows that.
func listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		_, port, _ := net.SplitHostPort(address)
		listener, err = net.Listen("tcp", "127.219.220.1:"+port)
	}
	return listener, err
}

// instead: all ports but that of the service address may be chosen.
func instead(address string) string {
	if address == serviceListener {
		return ""
	}
	return ", or set " + portVariable + " to the first of five free ports"
}

// holder finds the process that listens on the port: its socket's inode is in the kernel's table and among its files.
func holder(address string) string {
	_, text, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	inode := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, _ := os.ReadFile(table)
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) && fields[3] == "0A" {
				inode = fields[9]
			}
		}
	}
	if inode != "" {
		files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, file := range files {
			if target, _ := os.Readlink(file); target == "socket:["+inode+"]" {
				folder := filepath.Dir(filepath.Dir(file))
				name, _ := os.ReadFile(filepath.Join(folder, "comm"))
				return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), filepath.Base(folder))
			}
		}
	}
	return "a process that cannot be named"
}
