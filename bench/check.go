package bench

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// maxTokens is the largest number of tokens of a step: no shape has longer sequences, and no larger batch is useful.
const maxTokens = 1 << 24

// Check refuses options that no machine could time. The plan decides whether they fit in memory.
func (o Options) Check() error {
	cfg, err := Shape(o.Shape)
	problems := append([]error{err}, o.LoRA.Validate()...)
	if err == nil && (o.Length < 1 || o.Length > cfg.MaxPositions) {
		problems = append(problems, fmt.Errorf("length %d: %s takes 1 to %d tokens a row", o.Length, o.Shape, cfg.MaxPositions))
	}
	if o.Batch < 1 || o.Length > 0 && o.Batch > maxTokens/o.Length {
		problems = append(problems, fmt.Errorf("batch %d: a step takes at least 1 row and at most %d tokens", o.Batch, maxTokens))
	}
	c := train.Default()
	c.Precision, c.GradientCheckpointing = o.Precision, o.Checkpointing
	if o.FrozenGEMM != "" {
		c.FrozenGEMM = o.FrozenGEMM
	}
	if o.BaseSharding != "" {
		c.BaseSharding = o.BaseSharding
	}
	problems = append(problems, c.Validate()...)
	if o.VRAM != "" {
		if _, err := session.ParseBytes(o.VRAM); err != nil {
			problems = append(problems, fmt.Errorf("vram: %w", err))
		}
	}
	s := train.DefaultSpec()
	s.Device, s.Devices = "cpu", o.Devices
	if _, err := s.RanksAsked(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
