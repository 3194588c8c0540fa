package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
)

// towerParts are parts of the names of tensors that belong to an image tower or to its projector.
var towerParts = []string{"vision_model", "vision_tower", "vision_encoder", "visual", "connector",
	"multi_modal_projector"}

// ofTower reports whether a layer belongs to an image tower or to its projector.
func ofTower(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "."), func(part string) bool {
		return slices.Contains(towerParts, part)
	})
}

// checkTargets refuses targets that name layers of the image tower or of the projector alone. Both are frozen, and what
// they make of an image is computed before the training.
func checkTargets(b *Base, c adapter.Config) error {
	if b.Declared {
		return nil // its checkpoint is not read
	}
	targets := []adapter.Targets{c.TargetModules}
	if len(c.TargetModules) > 1 {
		targets = nil
		for _, name := range c.TargetModules {
			targets = append(targets, adapter.Targets{name})
		}
	}
	for _, target := range targets {
		frozen, trained := "", false
		for _, name := range b.Weights.Names() {
			path, ok := strings.CutSuffix(name, ".weight")
			if !ok || !target.Match(path) {
				continue
			}
			if !ofTower(path) {
				trained = true
			} else if frozen == "" {
				frozen = path
			}
		}
		if frozen != "" && !trained {
			return fmt.Errorf("%s: %s names layers of the image tower or of its projector alone, such as %s: they "+
				"stay frozen, and what they make of an image is computed once, before the first step; name layers "+
				"of the language model, such as q_proj, or %s", c.Key("target_modules"), target[0], frozen,
				adapter.AllLinear)
		}
	}
	return nil
}
