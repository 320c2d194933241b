// An image as a file: one layer, in the OCI layout. Written by hand, as an image of one program and some links needs
// neither a build tool nor root.
package onenode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"sort"
	"strings"
	"time"
)

// image is what goes into one: programs by their path inside, links by theirs, and what is run.
type image struct {
	name       string
	programs   map[string]string
	links      map[string]string
	folders    []string
	entrypoint []string
	command    []string
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive writes the layout as one tar. The same content gives the same bytes, and so the same image id.
func (i image) archive(to io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	layers := []descriptor{describe("application/vnd.oci.image.layer.v1.tar", layer)}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{"Entrypoint": i.entrypoint, "Cmd": i.command,
			"Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin:/sbin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layers[0].Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        describe("application/vnd.oci.image.config.v1+json", config),
		"layers":        layers,
	})
	if err != nil {
		return err
	}
	root := describe("application/vnd.oci.image.manifest.v1+json", manifest)
	root.Annotations = map[string]string{"io.containerd.image.name": i.name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{root}})
	if err != nil {
		return err
	}
	out := tar.NewWriter(to)
	for _, part := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index},
		{blob(manifest), manifest}, {blob(config), config}, {blob(layer), layer},
	} {
		if err := add(out, tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.content))}, part.content); err != nil {
			return err
		}
	}
	return out.Close()
}

func (i image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	out := tar.NewWriter(&buffer)
	for _, folder := range i.folders {
		mode := int64(0o755)
		if folder == "tmp" {
			mode = 0o1777
		}
		if err := add(out, tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: mode}, nil); err != nil {
			return nil, err
		}
	}
	for _, name := range sortedKeys(i.programs) {
		content, err := os.ReadFile(i.programs[name])
		if err != nil {
			return nil, err
		}
		if err := add(out, tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}, content); err != nil {
			return nil, err
		}
	}
	for _, name := range sortedKeys(i.links) {
		if err := add(out, tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: i.links[name], Mode: 0o777}, nil); err != nil {
			return nil, err
		}
	}
	err := out.Close()
	return buffer.Bytes(), err
}

func add(out *tar.Writer, header tar.Header, content []byte) error {
	header.ModTime, header.Format = time.Unix(0, 0), tar.FormatPAX
	if err := out.WriteHeader(&header); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

func describe(kind string, content []byte) descriptor {
	return descriptor{MediaType: kind, Digest: digest(content), Size: len(content)}
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func blob(content []byte) string { return "blobs/" + strings.Replace(digest(content), ":", "/", 1) }

func sortedKeys(of map[string]string) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
