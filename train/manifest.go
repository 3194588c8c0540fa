package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path"
	"path/filepath"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
)

// manifest returns the record of everything that determined the adapter.
func (r *loaded) manifest(ctx context.Context) (replay.Manifest, error) {
	m := replay.NewManifest(r.env.Version, r.env.Config, r.spec.Seed)
	m.Device, m.Precision, m.Data = r.On.Name(), r.On.Precision().String(), r.windows.State().Data
	m.SetLosses(r.recorder.progress.Losses)
	m.Steps = r.recorder.step() // including skipped steps, which have no loss
	m.Plans = r.recorder.progress.Plans
	m.Skipped = r.recorder.progress.Skipped
	m.Commit, m.Dirty = r.env.Commit, r.env.Dirty
	m.Software, m.Evidence = r.On.Software(), r.recorder.progress.Evidence
	plans := sha256.New()
	for _, plan := range r.found.Step.plans() {
		io.WriteString(plans, plan.String()) //nolint:errcheck // writing to a hash never fails
	}
	m.Plan = hex.EncodeToString(plans.Sum(nil))
	beside, err := r.tokenizerFiles()
	if err != nil {
		return m, err
	}
	m.Tokenizer = replay.HashFiles(beside)
	m.Base, err = r.Base.Digest(ctx, r.On.Workers())
	return m, err
}

// withCheckpoint adds the hashes of the newest checkpoint's weights and optimizer states to those of the adapter's
// folder. The other files of a checkpoint are copies or contain times.
func (r *loaded) withCheckpoint(sums map[string]string) (map[string]string, error) {
	if r.result.Checkpoint == "" {
		return sums, nil
	}
	saved, err := checkpoint.Sums(r.result.Checkpoint)
	if err != nil {
		return nil, err
	}
	for name, sum := range saved {
		if name == adapter.WeightsFile || name == optimizerFile || isWeights(name) {
			sums[path.Join(filepath.Base(r.result.Checkpoint), name)] = sum
		}
	}
	return sums, nil
}
