package families

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
)

// splitExperts splits a checkpoint's fused experts into tensors of each expert. The fused layout comes from
// transformers 5, which saves it with save_original_format=False: gate_up_proj [E,2I,C], an expert's gate rows before
// its up rows, or up_proj [E,I,C] of experts without gates, and down_proj [E,C,I], in a module with a name of its own.
func splitExperts(c model.Config, w *weights.Set) error {
	names := Table[c.ModelType].Experts
	if names == nil {
		return nil
	}
	first, of := ".experts.gate_up_proj", []string{names.Gate, names.Up}
	if names.Gate == "" {
		first, of = ".experts.up_proj", of[1:]
	}
	gateUps, downs := []string{part(names.Fused) + first}, []string{part(names.Fused) + ".experts.down_proj"}
	if names.GateUp != "" {
		gateUps, downs = append(gateUps, part(names.Block)+part(names.GateUp)),
			append(downs, part(names.Block)+part(names.OneDown))
	}
	fused := slices.ContainsFunc(w.Names(), func(name string) bool {
		_, gateUp := without(name, gateUps)
		_, down := without(name, downs)
		return gateUp || down
	})
	if !fused {
		return nil
	}
	return w.Split(func(t weights.Tensor) (parts []string, shape []int, err error) {
		router := cmp.Or(names.Router, "gate") + ".weight"
		for fused, own := range map[string]string{cmp.Or(names.FusedRouter, "gate") + ".weight": router, // beside them
			cmp.Or(names.FusedCorrection, names.Correction): names.Correction} {
			from, to := part(names.Fused)+part(fused), part(names.Block)+part(own)
			if layer, ok := strings.CutSuffix(t.Name, from); ok && own != "" && from != to {
				return []string{layer + to}, t.Shape, nil
			}
		}
		layer, gateUp := without(t.Name, gateUps)
		of, width := of, cmp.Or(c.ExpertLatent, c.HiddenSize)
		shape, rows := []int{c.ExpertSize, width}, len(of)*c.ExpertSize
		if !gateUp {
			var ok bool
			if layer, ok = without(t.Name, downs); !ok {
				return nil, nil, nil
			}
			of, shape, rows = []string{names.Down}, []int{width, c.ExpertSize}, width
		}
		if want := []int{c.Experts, rows, shape[1]}; !slices.Equal(t.Shape, want) {
			return nil, nil, fmt.Errorf("%s: shape %v, expected %v, the experts' %s as transformers 5 fuses them",
				t.Name, t.Shape, want, strings.Join(of, " and "))
		}
		for e := range c.Experts {
			for _, name := range of {
				parts = append(parts, fmt.Sprintf("%s%s.experts.%d.%s.weight", layer, part(names.Block), e, name))
			}
		}
		return parts, shape, nil
	})
}

// IsExpert reports whether a tensor of a network or a checkpoint belongs to experts: to one, or to all of a layer.
func IsExpert(c model.Config, name string) bool {
	if strings.Contains(name, ".experts.") {
		return true
	}
	names := Table[c.ModelType].Experts
	return names != nil && names.GateUp != "" && (strings.HasSuffix(name, part(names.Block)+part(names.GateUp)) ||
		strings.HasSuffix(name, part(names.Block)+part(names.OneDown)))
}

// without returns a name without the first of the endings that it has.
func without(name string, endings []string) (start string, ok bool) {
	for _, ending := range endings {
		if start, ok = strings.CutSuffix(name, ending); ok {
			return start, true
		}
	}
	return "", false
}

// part returns a block's name within its layer.
func part(block string) string {
	if block == "" {
		return ""
	}
	return "." + block
}
