package train

import (
	"fmt"
	"path/filepath"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// diskFree returns the bytes that may be written into a folder; tests replace it to fill the disk.
var diskFree = atomicfile.Free

// written returns the bytes that a checkpoint and the adapter take on disk, without the parts that grow with the steps
// and without the headers of files.
func (p *prepared) written() (saved, final int64, err error) {
	beside, err := p.besideAdapter()
	if err != nil {
		return 0, 0, err
	}
	var besides int64
	for _, data := range beside {
		besides += int64(len(data))
	}
	if p.whole() {
		for exact, bytes := range map[bool]*int64{true: &saved, false: &final} {
			folder, err := p.newWeightFiles(exact)
			if err != nil {
				return 0, 0, err
			}
			*bytes = besides
			for _, shard := range folder.shards {
				*bytes += shard.Bytes
			}
		}
		return saved + p.stateBytes(), final, nil
	}
	final = 4*p.found.Step.train.Trained.Numbers() + besides
	return final + p.stateBytes(), final, nil
}

// room checks, before the base model is loaded, the free space on output_dir's disk. It returns an error if one
// checkpoint and the adapter do not fit, and logs a warning if not all checkpoints to be kept fit. from is the
// checkpoint to resume from; "" = a new run.
func (p *prepared) room(from string) error {
	dir, c := p.spec.OutputDir, p.spec.Training
	if err := checkpoint.RemoveLeftovers(dir); err != nil {
		return fmt.Errorf("output_dir: %w", err)
	}
	saved, final, err := p.written()
	if err != nil {
		return err
	}
	if filepath.Base(from) == checkpoint.Name(p.total) {
		saved = 0 // the checkpoint exists already
	}
	free, ok := diskFree(dir)
	if !ok {
		return nil
	}
	if free < saved+final {
		return fmt.Errorf("output_dir: %w: a checkpoint takes %s and the adapter %s. Free some space, or choose an "+
			"output_dir on another disk",
			&atomicfile.FullError{Path: dir, Needed: saved + final, Free: free}, session.FormatBytes(saved),
			session.FormatBytes(final))
	}
	if kept := int64(keptCheckpoints(c, p.total)); from == "" && free < kept*saved+final {
		p.env.Logf("warning: the disk of %s has %s free, and the %d checkpoints that this run has at a time take "+
			"%s: training.save_total_limit and save_steps make them fewer",
			dir, session.FormatBytes(free), kept, session.FormatBytes(kept*saved))
	}
	return nil
}

// keptCheckpoints returns the largest number of checkpoints that a run has at a time: the best one is kept in addition,
// and an old one is kept until the new one is complete.
func keptCheckpoints(c Config, steps int) int {
	n := 1
	if c.SaveSteps > 0 {
		n = (steps + c.SaveSteps - 1) / c.SaveSteps
	}
	if c.SaveTotalLimit > 0 {
		n = min(n, c.SaveTotalLimit+2)
	}
	return n
}
