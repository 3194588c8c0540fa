//go:build gpu

package train

import (
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/train/step"
)

// TestGPUGraphMemory measures what the driver holds for the captured graph of each token budget.
func TestGPUGraphMemory(t *testing.T) {
	gputest.Need(t)
	for name, change := range map[string]func(*Spec){
		"as planned": func(*Spec) {},
		"recomputed": func(s *Spec) { s.Training.GradientCheckpointing = "full" },
	} {
		t.Run(name, func(t *testing.T) {
			s := smolLM2Spec(t, 150)
			s.Dataset.MaxLength, s.Training.BatchSize, s.Dataset.PadTo = 512, 4, dataset.PadNone
			change(&s)
			p, err := prepare(t.Context(), s, Env{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			m, err := p.Hold(t.Context(), p.found.Step.programs()...)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			free := func() int64 {
				n, _, err := p.On.FreeMemory()
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			for i, of := range p.found.Step.budgets() {
				run := m.Runs[i]
				// of a step of one micro-batch.
				segments := []string{step.SegmentBegin, step.SegmentMicro, step.SegmentNorm}
				before := free()
				if err := run.Prepare(segments...); err != nil {
					t.Fatal(err)
				}
				captured := free()
				if err := run.Run(segments...); err != nil {
					t.Fatal(err)
				}
				if _, err := run.Read(of.Loss); err != nil {
					t.Fatal(err)
				}
				after := free()
				nodes, err := run.(interface {
					Queued(...string) (int, error)
				}).Queued(segments...)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d tokens: %d nodes, %.1f MiB captured, %.1f MiB more once run; %.1f KiB a node", of.Tokens,
					nodes,
					float64(before-captured)/(1<<20), float64(captured-after)/(1<<20),
					float64(before-after)/1024/float64(nodes))
			}
		})
	}
}
