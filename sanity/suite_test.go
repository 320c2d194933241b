package sanity

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	csisanity "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

const (
	settingsEnv = "LOCALPOOL_SANITY_SETTINGS"
	seedEnv     = "LOCALPOOL_SANITY_SEED"

	// The whole suite takes seconds; the suite's own limit gives a report of where it hangs, ours is for the rest.
	suiteLimit = 4 * time.Minute
	killLimit  = suiteLimit + 45*time.Second
)

// settings is what one run of the official suite needs to know.
type settings struct {
	Name, Address, ControllerAddress            string
	TargetPath, StagingPath, AccessType, Report string
	Size, ExpandSize                            int64
	Parameters                                  map[string]string
}

// Ginkgo runs one suite per process: this binary starts itself again for each.
func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		os.Exit(m.Run())
	case roleJanitor:
		os.Exit(runJanitor())
	case roleSuite:
		flag.Parse()
		os.Exit(runSuite())
	default:
		fmt.Fprintf(os.Stderr, "%s=%s: no such role\n", roleEnv, role)
		os.Exit(2)
	}
}

// verdict takes the place of testing.T, which this process has none of.
type verdict struct{ failed bool }

func (v *verdict) Fail() { v.failed = true }

func runSuite() int {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsEnv)), &s); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", settingsEnv, err)
		return 2
	}
	config := csisanity.NewTestConfig()
	config.Address = s.Address
	config.ControllerAddress = s.ControllerAddress
	config.TargetPath = s.TargetPath
	config.StagingPath = s.StagingPath
	config.TestVolumeAccessType = s.AccessType
	config.TestVolumeSize = s.Size
	config.TestVolumeExpandSize = s.ExpandSize
	config.TestVolumeParameters = s.Parameters

	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.Timeout = suiteLimit
	reporter.NoColor = true
	reporter.JSONReport = s.Report
	if text := os.Getenv(seedEnv); text != "" {
		if _, err := fmt.Sscan(text, &suite.RandomSeed); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", seedEnv, err)
			return 2
		}
	}

	run := csisanity.GinkgoTest(&config)
	gomega.RegisterFailHandler(ginkgo.Fail)
	var v verdict
	passed := ginkgo.RunSpecs(&v, "csi-sanity "+s.Name, suite, reporter)
	run.Finalize()
	if !passed || v.failed {
		return 1
	}
	return 0
}

// result is what came of one run.
type result struct {
	name                             string
	passed, failed, pending, skipped int
	took                             time.Duration
	skips                            map[string]int // the suite's reason: how often
	closing                          []string       // the suite's own last lines
	err                              error          // why the run as a whole is no good
}

// runSuiteOn runs the official suite in a process of its own.
func runSuiteOn(t *testing.T, l lab, s settings) result {
	t.Helper()
	r := result{name: s.Name, skips: map[string]int{}}
	s.Report = l.path("report.json")
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), killLimit)
	defer cancel()

	var output strings.Builder
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+roleSuite, settingsEnv+"="+string(encoded))
	cmd.Stdout = io.MultiWriter(os.Stdout, &output)
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = 5 * time.Second
	begun := time.Now()
	if err = l.start(cmd); err == nil {
		err = cmd.Wait()
	}
	r.took = time.Since(begun)
	r.err = errors.Join(wrap("the suite's process", err), r.read(s.Report))
	for line := range strings.Lines(output.String()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "Ran ") || strings.HasPrefix(line, "SUCCESS!") || strings.HasPrefix(line, "FAIL!") {
			r.closing = append(r.closing, line)
		}
	}
	return r
}

// read counts from the suite's own report, so that nothing rests on how it prints.
func (r *result) read(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the suite left no report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(raw, &reports); err != nil {
		return fmt.Errorf("the suite's report: %w", err)
	}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			switch {
			case spec.State.Is(types.SpecStateFailureStates):
				r.failed++
			case spec.LeafNodeType != types.NodeTypeIt:
			case spec.State.Is(types.SpecStatePassed):
				r.passed++
			case spec.State.Is(types.SpecStatePending):
				r.pending++
			case spec.State.Is(types.SpecStateSkipped):
				r.skipped++
				r.skips[spec.Failure.Message]++
			}
		}
	}
	return nil
}
