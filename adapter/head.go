package adapter

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// HeadFile is the name of the file beside an adapter that says what the scores of its head mean, in the words of
// transformers' config.json. PEFT's adapter_config.json has no place for it.
const HeadFile = "head_config.json"

// Values of Head.Problem, transformers' problem_type.
const (
	SingleLabel = "single_label_classification" // one label of several: softmax of the scores
	MultiLabel  = "multi_label_classification"  // any number of labels: sigmoid of each score
	Regression  = "regression"                  // numbers, rewards among them: the scores as they are
)

// Head says what the scores of a head mean. The zero value says nothing of them.
type Head struct {
	// Task is the value of the configuration's task; "" = not known.
	Task string
	// Problem is one of SingleLabel, MultiLabel and Regression; "" = not known.
	Problem string
	// Labels are the names of the scores, in their order; nil = they have none.
	Labels []string
}

// headFile is HeadFile's content.
type headFile struct {
	Task    string            `json:"task,omitempty"`
	Problem string            `json:"problem_type,omitempty"`
	Count   int               `json:"num_labels,omitempty"`
	Labels  map[string]string `json:"id2label,omitempty"`
	IDs     map[string]int    `json:"label2id,omitempty"`
}

// LabelName returns the name of score i; transformers' default, LABEL_i, if it has none.
func (h Head) LabelName(i int) string {
	if i < len(h.Labels) {
		return h.Labels[i]
	}
	return "LABEL_" + strconv.Itoa(i)
}

// Files returns HeadFile for a head of count scores.
func (h Head) Files(count int) (map[string][]byte, error) {
	f := headFile{h.Task, h.Problem, count, map[string]string{}, map[string]int{}}
	for i := range h.Labels {
		f.Labels[strconv.Itoa(i)], f.IDs[h.Labels[i]] = h.Labels[i], i
	}
	return encodeFiles(map[string]any{HeadFile: f})
}

// maxLabels is the most labels of a head, that of classification.num_labels.
const maxLabels = 100_000

// ReadHead reads HeadFile from an adapter's folder, for a head of count scores; the zero value if there is none.
func ReadHead(dir string, count int) (Head, error) {
	return readHead(filepath.Join(dir, HeadFile), count)
}

// ReadModelHead reads what the scores of a whole model's head mean from the config.json of its folder.
func ReadModelHead(dir string, count int) (Head, error) {
	return readHead(filepath.Join(dir, "config.json"), count)
}

func readHead(path string, count int) (h Head, err error) {
	var f headFile
	found, err := readJSON(path, &f)
	if err != nil || !found {
		return h, err
	}
	if f.Count != count && f.Count != 0 {
		return h, fmt.Errorf("read %s: num_labels is %d, and the adapter's head has %d scores", path, f.Count, count)
	}
	if h.Labels, err = labelNames(f.Labels, count); err != nil {
		return h, fmt.Errorf("read %s: %w", path, err)
	}
	if known := []string{"", SingleLabel, MultiLabel, Regression}; !slices.Contains(known, f.Problem) {
		return h, fmt.Errorf("read %s: problem_type is %q, want one of %v", path, f.Problem, known[1:])
	}
	h.Task, h.Problem = f.Task, f.Problem
	return h, nil
}

// labelNames returns the names of id2label in the order of their numbers; nil if it is empty.
func labelNames(byID map[string]string, count int) ([]string, error) {
	if len(byID) == 0 {
		return nil, nil
	}
	if count > maxLabels || len(byID) != count {
		return nil, fmt.Errorf("id2label has %d labels, and the head has %d scores", len(byID), count)
	}
	names := make([]string, count)
	for i := range names {
		name, ok := byID[strconv.Itoa(i)]
		if !ok {
			return nil, fmt.Errorf("id2label has no label %d, and the head has %d scores", i, count)
		}
		names[i] = name
	}
	return names, nil
}
