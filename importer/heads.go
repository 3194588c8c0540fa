package importer

// Classes of transformers that load a model with a head in place of the vocabulary's.
const (
	sequenceClasses = "AutoModelForSequenceClassification.from_pretrained"
	tokenClasses    = "AutoModelForTokenClassification.from_pretrained"
)

// headed returns our objective for a Python program that trains a classification head with transformers' Trainer.
func (in *Input) headed() (name, said string) {
	switch {
	case in.calls[sequenceClasses]:
		return "classification", sequenceClasses
	case in.calls[tokenClasses]:
		return "token_classification", tokenClasses
	}
	return "", ""
}

// headRules are the rules of the arguments of classification heads.
var headRules = map[string]rule{
	"num_labels":              func(t *translation, e entry) { t.take(e, "classification.num_labels") },
	"problem_type":            problemType,
	"id2label":                labelNames,
	"label2id":                passed("id2label names the labels"),
	"task_type":               passed("the head is saved as PEFT's task type says"),
	"modules_to_save":         headModules,
	"ignore_mismatched_sizes": passed("the head is a new one"),
	"compute_metrics":         passed("accuracy, or the mean absolute error of a regression, is measured"),
}

// headModules reads modules_to_save: the head is always trained and saved.
func headModules(t *translation, e entry) {
	list, many := e.Value.([]any)
	if !many {
		list = []any{e.Value}
	}
	for _, name := range list {
		if name != "classifier" && name != "score" {
			t.missing(e, "the head is trained and saved, other modules stay as they are")
			return
		}
	}
	t.add(Taken, e, "", nil, "the head is trained and saved")
}

// problemType translates transformers' problem_type.
func problemType(t *translation, e entry) {
	t.choose(e, "classification.problem_type", map[string]string{"single_label_classification": "single_label",
		"multi_label_classification": "multi_label", "regression": "regression"})
}

// labelNames translates id2label, whose keys number the labels from 0.
func labelNames(t *translation, e entry) {
	m, _ := e.Value.(Map)
	var names []any
	for i, p := range m {
		name, ok := p.Value.(string)
		if !ok || p.Key != text(int64(i)) {
			names = nil
			break
		}
		names = append(names, name)
	}
	if names == nil {
		t.missing(e, "an expression, which is not worked out: give classification.labels, in the order of "+
			"their numbers")
		return
	}
	t.put(e, "classification.labels", names, "")
}

// finishHead sets the task of a classification head, and transformers' number of labels.
func finishHead(t *translation) {
	setAnew(t, "task", map[string]string{"classification": "sequence_classification"}[t.objective], "the head's class")
	if t.objective == "token_classification" {
		setAnew(t, "task", "token_classification", "the head's class")
	}
	if n := t.value("classification.num_labels"); n == int64(1) && !t.has("classification.problem_type") {
		setAnew(t, "classification.problem_type", "regression", "one label is a number in transformers")
	} else if n == nil && !t.has("classification.labels") {
		setAnew(t, "classification.num_labels", int64(2), "transformers' default of num_labels")
		t.entries = append(t.entries, Entry{Group: Missing, Class: Changes, Key: "num_labels", Value: "left out",
			Say: "2 is transformers' default: give classification.num_labels or classification.labels"})
	}
}
