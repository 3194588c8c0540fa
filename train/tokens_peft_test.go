package train

import (
	"testing"

	"github.com/tierlora/tierlora/adapter"
)

// TestSelectionLoadsInPEFT checks that adapters of some layers load in PEFT and transformers, key by key, and give the
// loss that the run's last evaluation had.
func TestSelectionLoadsInPEFT(t *testing.T) {
	python := pythonWithPEFT(t)
	var specs []Spec
	for _, edit := range []func(l *adapter.LoRA){
		func(l *adapter.LoRA) {
			l.TargetModules = adapter.Targets{adapter.AllLinear}
			l.ExcludeModules = adapter.Targets{"o_proj", "mlp.up_proj"}
		},
		func(l *adapter.LoRA) {
			l.TargetModules = adapter.Targets{`(?=.*layers).*(q|down)_proj`}
			l.ExcludeModules = adapter.Targets{`.*layers\.1\..*`}
		},
		func(l *adapter.LoRA) { l.LayersToTransform, l.LayersPattern = []string{"1", "3"}, []string{"layers"} },
	} {
		s := savedCases[0].spec(t, 3)
		s.LoRA.ModulesToSave = nil
		edit(&s.LoRA)
		idRows(t, &s)
		mustStart(t, s, oneWorker)
		specs = append(specs, s)
	}
	checkLossesInPEFT(t, python, specs)
}
