// Which images the cluster starts with, and how images get into containerd: no registry can be asked, so everything
// that a pod names must have been loaded.
package onenode

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	pauseImage   = "localpool.dev/pause:dev"
	testAppImage = "localpool.dev/test-app:dev"
	// By the names that the chart gives, whose registry has the same programs.
	provisionerImage = "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0"
	resizerImage     = "registry.k8s.io/sig-storage/csi-resizer:v2.3.0"
)

func (p *Programs) images() ([]image, error) {
	testApp, err := p.testApp()
	if err != nil {
		return nil, err
	}
	single := func(name, program string) image {
		return image{
			name:       name,
			programs:   map[string]string{program: p.beside(program)},
			folders:    []string{"tmp"},
			entrypoint: []string{"/" + program},
		}
	}
	return []image{single(pauseImage, "pause"), testApp, single(provisionerImage, "csi-provisioner"), single(resizerImage, "csi-resizer")}, nil
}

// testApp is a machine full of small tools, from one program.
func (p *Programs) testApp() (image, error) {
	program, err := elf.Open(p.busybox)
	if err != nil {
		return image{}, fmt.Errorf("%s: %w", p.busybox, err)
	}
	defer program.Close()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return image{}, fmt.Errorf("%s needs libraries, so an image cannot consist of it alone: install Debian's busybox-static (scripts/deps cluster)", p.busybox)
		}
	}
	output, err := exec.Command(p.busybox, "--list-full").Output()
	if err != nil {
		return image{}, fmt.Errorf("%s --list-full: %w", p.busybox, err)
	}
	built := image{
		name:     testAppImage,
		programs: map[string]string{"bin/busybox": p.busybox},
		links:    map[string]string{},
		folders:  []string{"bin", "sbin", "usr", "usr/bin", "usr/sbin", "tmp", "root"},
		// A pod that names no command stays, and ends at SIGTERM.
		command: []string{"/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"},
	}
	for path := range strings.FieldsSeq(string(output)) {
		if path != "bin/busybox" {
			built.links[path] = "/bin/busybox"
		}
	}
	return built, nil
}

func (c *Cluster) loadStartImages(ctx context.Context, programs *Programs) error {
	images, err := programs.images()
	if err != nil {
		return err
	}
	for _, one := range images {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(one.archive(writer)) }()
		err := c.ctr(ctx, programs, reader, "images", "import", "--snapshotter", c.snapshotter(), "-")
		reader.Close()
		if err != nil {
			return fmt.Errorf("load image %s: %w", one.name, err)
		}
	}
	return nil
}

// loadArchives takes what buildah, docker or podman save.
func (c *Cluster) loadArchives(archives []string) error {
	if len(archives) == 0 {
		return errors.New("load-image needs at least one archive, as `buildah push IMAGE docker-archive:FILE:NAME` or `docker save` write it")
	}
	programs, err := findPrograms()
	if err != nil {
		return err
	}
	if record, err := c.record("containerd"); err != nil || !record.alive() {
		return errors.New("containerd of the cluster does not run: make cluster-up starts it")
	}
	for _, archive := range archives {
		file, err := os.Open(archive)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		err = c.ctr(ctx, programs, file, "images", "import", "--snapshotter", c.snapshotter(), "-")
		cancel()
		file.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", archive, err)
		}
		say("loaded %s", archive)
	}
	return nil
}

// ctr talks to our containerd, never to the machine's.
func (c *Cluster) ctr(ctx context.Context, programs *Programs, input io.Reader, arguments ...string) error {
	all := append([]string{"--address", c.containerdSocket(), "--namespace", containerdSpace}, arguments...)
	command := exec.CommandContext(ctx, programs.ctr, all...)
	command.Stdin = input
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(output))
	}
	return nil
}
