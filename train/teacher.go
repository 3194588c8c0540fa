package train

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// teacherOf returns the name of the teacher that the run loads beside its model; "" = there is none. An adapter is the
// folder of an adapter over the run's base model, which is then the teacher.
func teacherOf(s Spec) (name string, isAdapter bool) {
	c := s.Objectives.Distill
	if objective.Objectives[s.Training.Objective] == nil || !objective.Taught(s.Objective()) || c == nil {
		return "", false
	}
	return c.Teacher, exists(filepath.Clean(c.Teacher), adapter.ConfigFile)
}

// openTeacher gives the network the teacher of the run, unless it is an adapter, which openReferenceAdapter opens.
func (p *opened) openTeacher(ctx context.Context) error {
	name, isAdapter := teacherOf(p.spec)
	if name == "" || isAdapter {
		return nil
	}
	if err := p.UseTeacher(ctx, name, p.spec.Objectives.Distill.TeacherScheme()); err != nil {
		return fmt.Errorf("distill.teacher: %w", err)
	}
	return nil
}

// noteOnTeacher returns what the plan reports of a teacher; "" = there is none.
func noteOnTeacher(p *planner) string {
	switch name, isAdapter := teacherOf(p.spec); {
	case name == "":
		return ""
	case isAdapter:
		return fmt.Sprintf("the teacher is %s over the base model, which is loaded once", name)
	default:
		bytes := p.found.Step.train.Plan.FrozenBytes(session.TeacherPrefix)
		return fmt.Sprintf("the teacher %s is frozen beside the model and stored as %s: %s", name,
			p.Net.Teacher.Storage(), session.FormatBytes(bytes))
	}
}
