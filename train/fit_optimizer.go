package train

import (
	"fmt"

	"github.com/tierlora/tierlora/session"
)

// optimizer8Bit is the optimizer that adamw is exchanged for where its moments are too large.
const optimizer8Bit = "adamw_8bit"

// suggestOptimizer looks whether the run would fit a layout, as it is or with one row at a time, if AdamW's moments took 8 bits.
func (p *prepared) suggestOptimizer(limit int64, l session.Layout, z shapes) string {
	if p.spec.Training.Optimizer != "adamw" {
		return ""
	}
	with := *p
	with.spec.Training.Optimizer = optimizer8Bit
	for _, rows := range []int{p.loader.Shape().Sequences, 1} {
		if rows == 1 {
			var err error
			if z, err = p.withRows(1); err != nil {
				return ""
			}
		}
		planned, err := with.planIn(l, z)
		if err != nil || planned.Need.Total() > limit {
			continue
		}
		hint := "training.optimizer: " + optimizer8Bit
		if p.spec.Training.GradientCheckpointing != "auto" {
			hint += " with training.gradient_checkpointing: auto"
		}
		if rows < p.loader.Shape().Sequences {
			hint += fmt.Sprintf(" and training.batch_size: %d", rows)
		}
		return fmt.Sprintf("%s would fit, in as little as %s: moments in 8 bits, other numbers", hint, session.FormatBytes(planned.Need.Total()))
	}
	return ""
}
