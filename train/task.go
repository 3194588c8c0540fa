package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/train/objective"
)

// TaskCausal is the value of `task` of models that predict the next token.
const TaskCausal = "causal"

// runTasks are the values of `task`: PEFT's task_type, and the objectives that train it; none = those of no other task.
var runTasks = map[string]struct {
	peft       string
	objectives []string
}{
	TaskCausal:                {},
	"sequence_classification": {adapter.SequenceClassification, []string{"classification", "reward"}},
	"token_classification":    {adapter.TokenClassification, []string{"token_classification"}},
	"reranker":                {adapter.SequenceClassification, []string{"rerank"}},
	"embedding":               {adapter.FeatureExtraction, []string{"contrastive"}},
}

func taskNames() []string { return slices.Sorted(maps.Keys(runTasks)) }

// TaskOf returns the value of `task` that an objective trains.
func TaskOf(objectiveName string) string {
	for _, name := range taskNames() {
		if slices.Contains(runTasks[name].objectives, objectiveName) {
			return name
		}
	}
	return TaskCausal
}

// task returns what the run's adapter is for.
func (s Spec) task() adapter.Task {
	t := adapter.Task{Type: runTasks[s.Task].peft}
	if t.HasScores() && objective.Objectives[s.Training.Objective] != nil {
		t.Labels = objective.Labels(s.Objective())
	}
	return t
}

// ValidateTask checks what task and the rest of the configuration say together.
func (s Spec) ValidateTask() (problems []error) {
	t, known := runTasks[s.Task]
	if !known || objective.Objectives[s.Training.Objective] == nil {
		return nil // the checks of the keys report it
	}
	name := s.Training.Objective
	switch of := TaskOf(name); {
	case s.Task == TaskCausal && of != TaskCausal:
		problems = append(problems,
			fmt.Errorf("task: is causal, and training.objective %s trains a head in place of the "+
				"vocabulary's: set task: %s", name, of))
	case s.Task != TaskCausal && !slices.Contains(t.objectives, name):
		problems = append(problems,
			fmt.Errorf("training.objective: %s does not train task %s: set training.objective: %s",
				name, s.Task, strings.Join(t.objectives, " or ")))
	}
	if s.Task == TaskCausal {
		return problems
	}
	if len(s.Training.SamplePrompts)+len(s.Training.EvalTasks) > 0 {
		problems = append(problems,
			fmt.Errorf("training.sample_prompts and training.eval_tasks write text, and task %s "+
				"writes none: remove them", s.Task))
	}
	return problems
}
