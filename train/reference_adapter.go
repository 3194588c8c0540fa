package train

import (
	"fmt"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/train/objective"
)

// Values of training.reference that are no folder.
const (
	referenceBase  = "base"
	referenceStart = "start"
)

// referenceAdapter returns the folder of the adapter of the reference, or of a teacher that is an adapter; "" = the
// reference is the base model, or the objective has none.
func (s Spec) referenceAdapter() string {
	if name, isAdapter := teacherOf(s); isAdapter {
		return name
	}
	if !objective.Refers(s.Objective()) {
		return ""
	}
	switch dir := s.Training.Reference; dir {
	case "", referenceBase:
		return ""
	case referenceStart:
		return s.AdapterConfig().InitFrom // a fresh adapter starts as the base model
	default:
		return dir
	}
}

// ValidateReference returns the problem of a reference that the run's objective would not use.
func (s Spec) ValidateReference() error {
	name, of := s.Training.Reference, s.Training.Objective
	if name == "" || name == referenceBase || objective.Objectives[of] == nil || objective.Refers(s.Objective()) {
		return nil
	}
	return fmt.Errorf("training.reference: does nothing with training.objective: %s, which compares the model with no "+
		"reference: remove it, or choose an objective such as dpo", of)
}

// openReferenceAdapter gives the network the adapter of the reference.
func (p *opened) openReferenceAdapter() (err error) {
	if dir := p.spec.referenceAdapter(); dir != "" {
		if p.Net.Reference, err = adapter.OpenReference(dir); err != nil {
			return fmt.Errorf("%s: %w", referenceKey(p.spec), err)
		}
	}
	return nil
}

// referenceKey is the key that names the adapter of referenceAdapter.
func referenceKey(s Spec) string {
	if _, isAdapter := teacherOf(s); isAdapter {
		return "distill.teacher"
	}
	return "training.reference"
}

// loadReference writes the adapter of the reference to memory.
func (s *saver) loadReference() (err error) {
	if s.Net.Reference != nil {
		trained := s.step.Trained
		if s.found.Step.refer != nil { // the steps have no reference
			trained = s.found.Step.refer.Trained
		}
		if s.reference, err = s.Net.Reference.Fill(trained, s.memory); err != nil {
			return fmt.Errorf("%s: %s: %w", referenceKey(s.spec), s.spec.referenceAdapter(), err)
		}
	}
	return nil
}

// sameReference refuses to resume a run with another reference than the run began with, and records the reference.
func (s *saver) sameReference(from string) error {
	if before := s.recorder.progress.Reference; from != "" && before != s.reference {
		return fmt.Errorf("resume from %s: %s: the run began with %s, and now has %s: give the "+
			"reference that it began with", from, referenceKey(s.spec), referenceTitle(before, ""),
			referenceTitle(s.reference, s.spec.referenceAdapter()))
	}
	s.recorder.progress.Reference, s.recorder.progress.Precomputed = s.reference, s.known != nil
	return nil
}

// referenceTitle names a reference by the SHA-256 of its adapter and its folder, where that is known.
func referenceTitle(sum, dir string) string {
	switch {
	case sum == "":
		return "the base model as reference"
	case dir == "":
		return fmt.Sprintf("an adapter with the SHA-256 %.12s as reference", sum)
	}
	return fmt.Sprintf("the adapter of %s with the SHA-256 %.12s", dir, sum)
}
