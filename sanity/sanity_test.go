// Package sanity proves localpool from outside: its proto against the official descriptors, and the running driver
// against the official csi-sanity suite, for each layout, as block devices and as mounts.
package sanity

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

const (
	binaryEnv  = "LOCALPOOL_BIN"
	summaryEnv = "LOCALPOOL_SANITY_SUMMARY"

	mib = int64(1) << 20
)

var parameters = map[string]string{"class": "sanity"}

// layout is a way to make volumes of disks, and the disks to try it on. All images are sparse.
type layout struct {
	name         string
	disks        int
	diskSize     int64
	partitioning string // the set's partitioningSpec, if any
	// offers is how many volumes of the largest size fit when all is claimed, and leastSize what that size is at least.
	offers, leastSize int64
	// size and expandSize are fixed where a volume is as large as asked; else both are the one size there is.
	size, expandSize int64
}

var layouts = []layout{
	{name: "Whole", disks: 16, diskSize: 96 * mib, offers: 16, leastSize: 64 * mib},
	{name: "Slots", disks: 1, diskSize: 16*128*mib + 16*mib, partitioning: "{partSize: 128Mi, count: 16}", offers: 16, leastSize: 128 * mib},
	{name: "Carved", disks: 1, diskSize: 8 << 30, partitioning: "{mode: Dynamic}", offers: 1, leastSize: 4 << 30, size: 256 * mib, expandSize: 384 * mib},
}

var accessTypes = []string{"block", "mount"}

// required is what must be advertised: without it the suite would skip its specs and call that a success.
var required = []string{
	"plugin/CONTROLLER_SERVICE", "plugin/VOLUME_ACCESSIBILITY_CONSTRAINTS",
	"controller/CREATE_DELETE_VOLUME", "controller/GET_CAPACITY", "controller/LIST_VOLUMES", "controller/GET_VOLUME",
	"controller/11", "controller/EXPAND_VOLUME", "controller/SINGLE_NODE_MULTI_WRITER",
	"node/STAGE_UNSTAGE_VOLUME", "node/GET_VOLUME_STATS", "node/4", "node/EXPAND_VOLUME", "node/SINGLE_NODE_MULTI_WRITER",
}

// gates maps each reason that the suite gives for a skip to the capability behind it. A skip for another reason, or in
// spite of the capability, is a failure: the suite also skips where a driver's answer does not suit it.
var gates = map[string]string{
	"Controller Service not provided: CreateVolume not supported": "plugin/CONTROLLER_SERVICE",
	"GroupControllerService not supported":                        "plugin/GROUP_CONTROLLER_SERVICE",
	"VolumeGroupSnapshots not supported":                          "plugin/GROUP_CONTROLLER_SERVICE",
	"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported":            "plugin/SNAPSHOT_ACCESSIBILITY_CONSTRAINTS",

	"CreateVolume not supported":                           "controller/CREATE_DELETE_VOLUME",
	"DeleteVolume not supported":                           "controller/CREATE_DELETE_VOLUME",
	"GetCapacity not supported":                            "controller/GET_CAPACITY",
	"ListVolumes not supported":                            "controller/LIST_VOLUMES",
	"ControllerExpandVolume not supported":                 "controller/EXPAND_VOLUME",
	"ControllerPublishVolume not supported":                "controller/PUBLISH_UNPUBLISH_VOLUME",
	"ControllerUnpublishVolume not supported":              "controller/PUBLISH_UNPUBLISH_VOLUME",
	"Controller Publish, UnpublishVolume not supported":    "controller/PUBLISH_UNPUBLISH_VOLUME",
	"ControllerPublishVolume.readonly field not supported": "controller/PUBLISH_READONLY",
	"Volume Cloning not supported":                         "controller/CLONE_VOLUME",
	"Snapshot not supported":                               "controller/CREATE_DELETE_SNAPSHOT",
	"CreateSnapshot not supported":                         "controller/CREATE_DELETE_SNAPSHOT",
	"DeleteSnapshot not supported":                         "controller/CREATE_DELETE_SNAPSHOT",
	"ListSnapshots not supported":                          "controller/LIST_SNAPSHOTS",
	"GetSnapshot not supported":                            "controller/GET_SNAPSHOT",
	"Modify volume not supported":                          "controller/MODIFY_VOLUME",
	"Modify Volume not supported":                          "controller/MODIFY_VOLUME",
	"ControllerModifyVolume not supported":                 "controller/MODIFY_VOLUME",
	"ControllerGetVolumeHealth not supported":              "controller/GET_VOLUME_HEALTH",
	"ControllerListVolumeHealth not supported":             "controller/LIST_VOLUME_HEALTH",

	"NodeStageVolume not supported":                             "node/STAGE_UNSTAGE_VOLUME",
	"NodeUnstageVolume not supported":                           "node/STAGE_UNSTAGE_VOLUME",
	"NodeGetVolume not supported":                               "node/GET_VOLUME_STATS",
	"NodeExpandVolume not supported":                            "node/EXPAND_VOLUME",
	"Service does not have single node multi writer capability": "node/SINGLE_NODE_MULTI_WRITER",
	"NodeGetVolumeHealth not supported":                         "node/GET_VOLUME_HEALTH",
	"NodeGetStorageHealth not supported":                        "node/GET_STORAGE_HEALTH",
}

func TestSanity(t *testing.T) {
	var results []result
	var notes []string
	defer func() { summarize(t, results, notes) }()
	// Loudly: what was not tried must not look like what passed.
	leave := func(leave func(...any), format string, arguments ...any) {
		note := fmt.Sprintf(format, arguments...)
		notes = append(notes, note)
		fmt.Fprintln(os.Stderr, "sanity: "+note)
		leave(note)
	}

	combinations := len(layouts) * len(accessTypes)
	if os.Geteuid() != 0 {
		leave(t.Skip, "SKIPPED: all %d combinations, standalone and on Kubernetes: loop devices and mounts need root", 2*combinations)
	}
	binary, cluster := os.Getenv(binaryEnv), os.Getenv(clusterEnv)
	if binary == "" {
		leave(t.Fatal, "NOT RUN: %s does not name the localpool binary", binaryEnv)
	}
	every := func(t *testing.T, prefix string, start starter) {
		for _, layout := range layouts {
			for _, access := range accessTypes {
				name := layout.name + "/" + access
				t.Run(name, func(t *testing.T) {
					// Whatever ends the combination early, it has its line in the table.
					r := result{name: prefix + name, err: errors.New("did not get to run the suite")}
					defer func() { results = append(results, r) }()
					layout.run(t, start, access, &r)
				})
			}
		}
	}
	every(t, "", func(t *testing.T, l lab, sets string) *driver { return startStandalone(t, l, binary, sets) })
	t.Run("Kubernetes", func(t *testing.T) {
		if cluster == "" {
			leave(t.Skip, "SKIPPED: %d combinations on Kubernetes: %s does not name localpool-cluster, which cluster/build makes", combinations, clusterEnv)
		}
		api := onKubernetes(t, binary, cluster)
		every(t, "Kubernetes/", func(t *testing.T, l lab, sets string) *driver { return startOnKubernetes(t, l, binary, api, sets) })
	})
}

// starter runs a driver with a set document, for the disks of a lab.
type starter func(t *testing.T, l lab, sets string) *driver

func (layout layout) run(t *testing.T, start starter, access string, r *result) {
	l := newLab(t)
	for i := range layout.disks {
		l.disk(t, fmt.Sprintf("disk-%02d.img", i), layout.diskSize)
	}
	d := start(t, l, layout.sets(l))
	defer func() {
		if t.Failed() {
			fmt.Println(d.logTail())
		}
	}()

	has := d.capabilities(t)
	for _, capability := range required {
		if !has[capability] {
			t.Errorf("the driver does not advertise %s", capability)
		}
	}

	capability := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
	if access == "block" {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	offer := d.offer(t, layout.offers, layout.leastSize, capability)
	if d.objects != nil {
		d.objects.remember(t)
	}
	largest := offer.GetMaximumVolumeSize().GetValue()
	s := settings{
		Name: r.name, Address: d.node.address, ControllerAddress: d.controller.address,
		TargetPath: l.path("target"), StagingPath: l.path("staging"), AccessType: access,
		Size: largest, ExpandSize: largest, Parameters: parameters,
	}
	if layout.size > 0 {
		s.Size, s.ExpandSize = layout.size, layout.expandSize
	}
	fmt.Printf("\n=== csi-sanity %s: volumes of %d bytes, expanded to %d; largest on offer %d\n", r.name, s.Size, s.ExpandSize, largest)
	*r = runSuiteOn(t, l, s)

	if r.err != nil {
		t.Error(r.err)
	}
	if r.failed > 0 || r.passed == 0 {
		t.Errorf("%d specs failed, %d passed", r.failed, r.passed)
	}
	for reason, count := range r.skips {
		capability, known := gates[reason]
		if !known {
			t.Errorf("%d specs skipped for a reason that is no missing capability: %s", count, reason)
		} else if has[capability] {
			t.Errorf("%d specs skipped although the driver advertises %s: %s", count, capability, reason)
		}
	}
	if err := d.dead(); err != nil {
		t.Error(err)
		return
	}
	var left error
	if !eventually(30*time.Second, func() bool { left = d.clean(t, offer, capability); return left == nil }) {
		t.Errorf("after the suite: %v", left)
	}
	if mounts, err := l.mounts(); err != nil || len(mounts) > 0 {
		t.Errorf("mounted after the suite: %q (%v)", mounts, err)
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
}

// sets is the document that the driver gets: this lab's disks, and no others.
func (layout layout) sets(l lab) string {
	document := fmt.Sprintf(`apiVersion: local.storage.openshift.io/v1alpha1
kind: LocalVolumeSet
metadata: {name: sanity, namespace: default}
spec:
  storageClassName: sanity
  deviceInclusionSpec:
    deviceTypes: [loop]
    minSize: 0
    paths: [%q]
`, l.path("disk-*.img"))
	if layout.partitioning != "" {
		document += "  partitioningSpec: " + layout.partitioning + "\n"
	}
	return document
}

// summarize ends the run with a table, on the terminal and, where that is asked for, in a file.
func summarize(t *testing.T, results []result, notes []string) {
	var text strings.Builder
	fmt.Fprintln(&text, "\ncsi-sanity summary")
	skips := map[string]int{}
	if len(results) > 0 {
		table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "combination\tpassed\tfailed\tskipped\tpending\tseconds\t")
		for _, r := range results {
			remark := ""
			if r.err != nil && r.passed+r.failed == 0 {
				remark = r.err.Error()
			}
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%.1f\t%s\n", r.name, r.passed, r.failed, r.skipped, r.pending,
				r.took.Round(100*time.Millisecond).Seconds(), remark)
		}
		table.Flush()
		for _, r := range results {
			for _, line := range r.closing {
				fmt.Fprintf(&text, "%s: %s\n", r.name, line)
			}
			for reason, count := range r.skips {
				skips[reason] = max(skips[reason], count)
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(skips)) {
		if reason == "" {
			fmt.Fprintf(&text, "not run, as the suite was stopped early: up to %d per combination\n", skips[reason])
			continue
		}
		fmt.Fprintf(&text, "skipped by the suite itself, %d per combination: %s\n", skips[reason], reason)
	}
	for _, note := range notes {
		fmt.Fprintln(&text, note)
	}
	_, _ = io.WriteString(os.Stdout, text.String())
	if path := os.Getenv(summaryEnv); path != "" {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Errorf("summary: %v", err)
		}
	}
}
