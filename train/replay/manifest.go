package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// ManifestFile is the name of the manifest in a run's output folder.
const ManifestFile = "run_manifest.json"

// Manifest records what a run was made from and what it did: two runs with equal manifests trained the same adapter.
// Hashes are SHA-256 in hexadecimal.
type Manifest struct {
	Program   string `json:"program"` // version of the binary
	Commit    string `json:"commit"`  // commit from which the binary was built; "" = unknown
	Dirty     bool   `json:"dirty"`   // files differed from the commit
	GoVersion string `json:"go_version"`
	Platform  string `json:"platform"` // such as linux/amd64
	Device    string `json:"device"`
	Precision string `json:"precision"`           // precision in effect
	Config    string `json:"config_sha256"`       // hash of the effective configuration
	Data      string `json:"data_sha256"`         // hash over the tokens and labels
	Base      string `json:"base_weights_sha256"` // hash over every tensor's name, type, shape and SHA-256
	Seed      uint64 `json:"seed"`
	Losses    string `json:"losses_sha256"` // hash over the float64 loss of each step, little endian
	// Tokenizer, Plan and Software decide the last bits of the numbers, or the rows that a step sees. "" = not known.
	// over the base model's tokenizer files and the chat template
	Tokenizer string `json:"tokenizer_sha256,omitempty"`
	// hash over the calls of every program, with their places in memory
	Plan     string         `json:"plan_sha256,omitempty"`
	Software graph.Software `json:"software"`
	Steps    int            `json:"steps"`                   // steps of the run, including skipped ones
	Skipped  []int          `json:"skipped_steps,omitempty"` // steps whose loss or gradient was not finite
	// EndedEarly says why the run ended before its last step; "" = it made all its steps.
	EndedEarly string `json:"ended_early,omitempty"`
	// ResultStep is the step of the checkpoint whose weights are the result; 0 = the last step.
	ResultStep int `json:"result_step,omitempty"`
	// LastAdapter is the SHA-256 of the adapter's weights after the last step, if the result has others; else "".
	LastAdapter string     `json:"last_adapter_sha256,omitempty"`
	Plans       []PartPlan `json:"plans,omitempty"`    // memory layouts of the run's parts, in order
	Evidence    []Evidence `json:"evidence,omitempty"` // in ascending order of steps
	// Files holds the hashes of the adapter's folder as the run left it, and of weights and optimizer of its last
	// checkpoint, by path in the run's folder. It is nil in manifests of older programs.
	Files map[string]string `json:"files_sha256,omitempty"`
}

// PartPlan is the layout of a part of a run: the steps from FirstStep to the first step of the next part.
type PartPlan struct {
	FirstStep    int    `json:"first_step"`
	BatchSize    int    `json:"batch_size"`                  // rows of a micro-batch
	Accumulation int    `json:"gradient_accumulation_steps"` // micro-batches of a step on each rank
	Pieces       int    `json:"pieces,omitempty"`            // micro-batches of a configured batch; 0 = one
	Layout       string `json:"layout"`
	// LossRows is the number of rows of logits computed together, if memory allowed fewer than the device's default;
	// else 0. The last bits of losses depend on it.
	LossRows int   `json:"loss_rows,omitempty"`
	Bytes    int64 `json:"bytes"`                           // planned memory on each device
	Ranks    int   `json:"ranks,omitempty"`                 // ranks that share a step; 0 = one
	Context  int   `json:"context_parallel_size,omitempty"` // ranks that share a row's tokens; 0 = one
}

// SameBits reports whether steps have the same bits under either plan.
func (p PartPlan) SameBits(q PartPlan) bool {
	return p.Pieces == q.Pieces && p.Context == q.Context && p.LossRows == q.LossRows
}

// NewManifest returns a manifest with the entries that the program and its configuration determine.
func NewManifest(program string, config []byte, seed uint64) Manifest {
	return Manifest{
		Program: program, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Config: HashBytes(config), Seed: seed,
	}
}

// SetLosses records the losses of all steps so far, if none was skipped.
func (m *Manifest) SetLosses(losses []float64) {
	m.Steps, m.Losses = len(losses), HashLosses(losses)
}

// Write saves the manifest in dir.
func (m Manifest) Write(dir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, ManifestFile), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", ManifestFile, err)
	}
	return nil
}

// ReadManifest reads the manifest of the run in dir.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	data, err := regular.ReadFile(filepath.Join(dir, ManifestFile))
	if err == nil {
		err = jsonerr.Unmarshal(data, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read %s: %w", ManifestFile, err)
	}
	if n := len(m.Evidence); n > 0 && len(m.Skipped) > 0 {
		m.Steps = m.Evidence[n-1].Step // older programs did not count skipped steps
	}
	return m, nil
}

// HashBytes returns the SHA-256 of data in hexadecimal.
func HashBytes(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
