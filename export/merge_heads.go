package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/jsonedit"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// HeadReport describes the head of a merged model that gives scores or vectors of texts.
type HeadReport struct {
	Class  string `json:"class"`            // transformers' class
	Labels int    `json:"labels,omitempty"` // scores of the head; 0 = the model gives vectors
	// Texts is the number of texts that were compared; 0 = none. MaxDifference is the largest difference of a score, or
	// of a number of a vector, between the merged model and base with adapter.
	Texts         int     `json:"texts,omitempty"`
	MaxDifference float64 `json:"max_difference,omitempty"`
}

// head is the head that a merged model gets in place of the vocabulary's.
type head struct {
	task    adapter.Task
	class   string
	meaning adapter.Head
	pooling adapter.Pooling
	length  int // most tokens of a text of a model that gives vectors
	params  []adapter.Param
}

// heads are the endings of transformers' classes by task_type.
var heads = map[string]model.Head{adapter.SequenceClassification: model.SequenceHead,
	adapter.TokenClassification: model.TokenHead, adapter.FeatureExtraction: model.NoHead}

// newHead returns the head of an adapter in a folder; nil for an adapter that writes text.
func newHead(s *session.Session, dir string) (*head, error) {
	h := &head{task: s.Net.Task()}
	if h.task.Type == "" {
		return nil, nil
	}
	config, err := regular.ReadFS(s.Base.Folder, configFile)
	if err != nil {
		return nil, err
	}
	var of struct{ Architectures []string }
	if err := json.Unmarshal(config, &of); err != nil || len(of.Architectures) != 1 {
		return nil, fmt.Errorf("%s names %v as its architectures: a model with a head needs one class", configFile,
			of.Architectures)
	}
	kind, known := heads[h.task.Type], s.Base.Config.Head != ""
	if h.class = of.Architectures[0]; !known {
		if h.class, known = kind.Class(h.class); !known {
			return nil, fmt.Errorf("transformers has no %s of %s: only models of classes XForCausalLM get a head", kind,
				of.Architectures[0])
		}
	}
	if h.task.HasScores() {
		h.meaning, err = adapter.ReadHead(dir, h.task.Labels)
	} else if h.pooling, err = adapter.ReadPooling(dir); err == nil {
		h.length, err = adapter.ReadLength(dir, s.Base.Config.MaxPositions)
	}
	if err != nil {
		return nil, err
	}
	_, params, err := s.AdapterTensors()
	for _, p := range params {
		if p.Name == adapter.ScoreWeight || p.Name == adapter.ScoreBias {
			h.params = append(h.params, p)
		}
	}
	return h, err
}

// describe adds to the files of a model's folder what its class and its head are.
func (h *head) describe(b *session.Base, files map[string][]byte) error {
	delete(files, "generation_config.json")
	if err := session.NamePadding(b, files); err != nil {
		return err
	}
	set := map[string]any{"architectures": []string{h.class}, "pad_token_id": b.PadID()}
	if h.task.HasScores() {
		names, ids := map[string]string{}, map[string]int{}
		for i := range h.task.Labels {
			names[strconv.Itoa(i)], ids[h.meaning.LabelName(i)] = h.meaning.LabelName(i), i
		}
		set["id2label"], set["label2id"] = names, ids
		if h.meaning.Problem != "" {
			set["problem_type"] = h.meaning.Problem
		}
	} else {
		vectors, err := h.pooling.Files(b.Config.HiddenSize, h.length)
		if err != nil {
			return err
		}
		settings, err := h.pooling.Settings()
		if err != nil {
			return err
		}
		maps.Copy(files, vectors)
		maps.Copy(files, settings)
	}
	for _, key := range []string{"architectures", "pad_token_id", "id2label", "label2id", "problem_type"} {
		value, ok := set[key]
		if !ok {
			continue
		}
		text, err := json.Marshal(value)
		if err == nil {
			files[configFile], err = jsonedit.Set(files[configFile], key, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", configFile, err)
		}
	}
	return nil
}

// headTensors returns the tensors of the head in the type of the embeddings, and keeps their bytes.
func headTensors(m *merging) (all []weights.Tensor, err error) {
	embeddings, err := m.tensor(m.s.Base.Config.HeadName())
	if err != nil && m.s.Base.Config.TieEmbeddings {
		return nil, err
	}
	d := weights.F32
	if err == nil && isNumbers(embeddings.DType) {
		d = m.target(embeddings)
	}
	for _, p := range m.head.params {
		if i := tooLarge(d, p.Data); i >= 0 {
			return nil, fmt.Errorf("tensor %s is %v at element %d, which fp16 can't hold", p.Name, p.Data[i], i)
		}
		data, err := weights.AppendFloat32s(nil, d, p.Data)
		if err != nil {
			return nil, err
		}
		m.parts[p.Name] = data
		all = append(all, weights.Tensor{Name: p.Name, DType: d, Shape: p.Shape})
		m.bytes += int64(len(data))
	}
	return all, nil
}

// measureHead compares what the folder gives for texts with base and adapter.
func measureHead(ctx context.Context, m *merging, dir string, env session.Env, report *MergeReport) error {
	report.Head = &HeadReport{Class: m.head.class, Labels: m.head.task.Labels}
	if len(m.o.Check) == 0 {
		return m.reopen(ctx, dir, env)
	}
	trained := m.o.Trained
	if m.o.Original {
		trained = nil
	}
	merged, err := predictions(ctx, m, session.Options{Model: dir, Device: "cpu"}, infer.PredictorOptions{}, env)
	if err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	with, err := predictions(ctx, m, session.Options{Model: m.o.Model, Device: "cpu", Quantization: trained},
		infer.PredictorOptions{Adapters: []infer.NamedAdapter{{Name: "adapter", Dir: m.o.Adapters[0].Dir}}}, env)
	if err != nil {
		return err
	}
	for i := range with {
		for k, x := range with[i].Numbers {
			report.Head.MaxDifference = max(report.Head.MaxDifference, math.Abs(float64(x-merged[i].Numbers[k])))
		}
	}
	report.Head.Texts = len(with)
	return nil
}

// predictions returns what a model gives for the texts of the check.
func predictions(ctx context.Context, m *merging, o session.Options, po infer.PredictorOptions,
	env session.Env) (out []infer.Prediction, err error) {
	env.Log = nil
	po.MaxLen = min(maxCheck, m.s.Base.Config.MaxPositions)
	p, err := infer.NewPredictor(ctx, o, po, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	var texts []infer.Passage
	for _, text := range m.o.Check {
		if ids := p.Base.Tokenizer.IDs(text, true); len(ids) > 0 {
			texts = append(texts, infer.Passage{IDs: ids[:min(len(ids), po.MaxLen)]})
		}
	}
	return p.Predict(ctx, texts)
}

// makeFolders makes the folders of files whose names have some.
func makeFolders(dir string, files map[string][]byte) error {
	for name := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(filepath.FromSlash(name))), 0o755); err != nil {
			return err
		}
	}
	return nil
}
