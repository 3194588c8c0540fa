package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train/optimizer"
	"github.com/tierlora/tierlora/train/replay"
)

// Subject identifies what a run trains, on which rows, and with which settings. Two runs of one subject differ by the
// adapter's initial weights only, or by rounding. Hashes are SHA-256 in hexadecimal.
type Subject struct {
	Base       string `json:"base_weights_sha256"` // hash of the base weights, as in the manifest
	Rows       string `json:"rows_sha256"`         // hash of the tokens and labels of the rows of each step, in order
	Validation string `json:"validation_sha256"`   // hash of the tokens and labels of the validation rows
	Steps      int    `json:"steps"`
	// Configuration has every key that decides the numbers, with its value, but neither seed nor precision.
	Configuration map[string]string `json:"configuration"`
}

// Recipe is what another program needs to train the same Subject. NewRecipe makes it without planning or allocating
// memory.
type Recipe struct {
	Subject
	BaseModel  string       `json:"base_model"`
	Train      []RecipeStep `json:"train"`
	Validation []RecipeRow  `json:"validation"`
}

// RecipeStep is an optimizer step: its micro-batches of rows. The loss is the mean over the trained tokens of all its
// rows.
type RecipeStep struct {
	LearningRate float64       `json:"learning_rate"`
	Batches      [][]RecipeRow `json:"batches"`
}

// RecipeRow is a row as the model sees it, without padding. Labels[t] is IDs[t] where that token is trained, else -100.
type RecipeRow struct {
	IDs    []int32 `json:"ids"`
	Labels []int32 `json:"labels"`
	// Borders are the tokens at which the second and each further sequence of the row begins; empty = one sequence.
	Borders []int32 `json:"borders,omitempty"`
}

var errStreamed = errors.New("dataset.streaming: the rows of a stream are not known before they are read; a run " +
	"that is compared with another loads its data")

// NewRecipe reads base model and data of a configuration. The recipe does not depend on the device.
func NewRecipe(ctx context.Context, s Spec, env Env) (r Recipe, err error) {
	if s.Dataset.Streaming {
		return r, errStreamed
	}
	if s, err = s.asOne(); err != nil {
		return r, err
	}
	s.Device, s.Training.Precision, s.Training.FrozenGEMM, s.VRAM = "cpu", "auto", "bf16", ""
	p, err := open(ctx, s, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.readData(ctx); err != nil {
		return r, err
	}
	if p.total, err = stepsOf(p.spec.Training, p.loader, p.window()); err != nil {
		return r, err
	}
	r.BaseModel = s.BaseModel
	schedule := Schedules[s.Training.LRScheduler](s.Training, p.total)
	err = p.eachStep(func(step int, batches []dataset.Batch) {
		of := RecipeStep{LearningRate: schedule(step - 1)}
		for _, b := range batches {
			of.Batches = append(of.Batches, p.rowsOf(b))
		}
		r.Train = append(r.Train, of)
	})
	if err != nil {
		return r, err
	}
	r.Validation = []RecipeRow{}
	for i := range p.data.Val.Len() {
		r.Validation = append(r.Validation, recipeRow(p.data.Val.Row(i)))
	}
	r.Subject, err = p.subject(ctx)
	return r, err
}

func recipeRow(r dataset.Row) RecipeRow { return RecipeRow{r.IDs, r.Labels, r.Borders} }

func (b *batches) rowsOf(of dataset.Batch) []RecipeRow {
	var rows []RecipeRow
	for _, i := range of.Rows {
		rows = append(rows, recipeRow(b.data.Train.Row(i)))
	}
	return rows
}

// eachStep calls see with the micro-batches of every step from the first, independently of the place of the run's own
// loader.
func (b *batches) eachStep(see func(step int, batches []dataset.Batch)) error {
	loader, err := b.trainLoader(b.data, b.batchSize)
	if err != nil {
		return err
	}
	defer loader.Close()
	for step := range b.total {
		batches, _, err := loader.NextWindow(b.window())
		if err != nil {
			return err
		}
		see(step+1, batches)
	}
	return nil
}

// subject returns the subject of the run. It hashes the whole base model.
func (p *inputs) subject(ctx context.Context) (Subject, error) {
	s, err := p.rowsSubject()
	if err == nil {
		s.Base, err = p.Base.Digest(ctx, p.On.Workers())
	}
	return s, err
}

// rowsSubject returns the subject without the base model's hash.
func (p *inputs) rowsSubject() (Subject, error) {
	s := Subject{Steps: p.total, Configuration: p.comparable()}
	rows := sha256.New()
	err := p.eachStep(func(_ int, batches []dataset.Batch) {
		replay.HashInts(rows, []int32{int32(len(batches))})
		for _, b := range batches {
			for _, row := range p.rowsOf(b) {
				hashRow(rows, row)
			}
		}
	})
	if err != nil {
		return s, err
	}
	val := sha256.New()
	for i := range p.data.Val.Len() {
		hashRow(val, recipeRow(p.data.Val.Row(i)))
	}
	s.Rows, s.Validation = hex.EncodeToString(rows.Sum(nil)), hex.EncodeToString(val.Sum(nil))
	return s, nil
}

func hashRow(h hash.Hash, r RecipeRow) {
	replay.HashInts(h, r.IDs)
	replay.HashInts(h, r.Labels)
	if len(r.Borders) > 0 {
		replay.HashInts(h, r.Borders)
	}
}

// uncompared lists the keys of meaning that two runs of one subject may differ in.
var uncompared = []string{
	"seed", "steps", // the rows of each step are compared instead
	// These only affect rounding.
	"training.precision", "training.frozen_gemm", "training.loss_scale_interval", "training.context_parallel_size",
	"training.on_nonfinite", "training.max_skipped_steps", // a run without a non-finite step is the same
}

// withoutEffect holds values with which a key changes no number. References that were made before there was the key
// don't know it.
var withoutEffect = map[string]string{"training.learning_rate_pattern": "map[]",
	"training.weight_decay_pattern": "map[]",
	"task":                          TaskCausal, "training.neftune_alpha": "0", "full.train": "[]",
	"full.stochastic_rounding": "false", "miss.dropout": "0",
	"vera.dropout": "0", "vera.d_initial": "0", "vera.projection_prng_key": "0",
	"lora.modules_to_save": "[]", "lora.ensure_weight_tying": "false",
	"lora.trainable_token_indices": "[]", "lora.lora_bias": "false", "lora.bias": "none",
	"tokenizer.add_tokens": "[]", "tokenizer.add_special_tokens": "map[]",
	"tokenizer.additional_special_tokens": "[]", "tokenizer.init_from": "mean"}

// comparable returns the keys that decide the numbers of a run, without those of its rows, base model, seed and
// rounding. It leaves out empty values.
func (p *inputs) comparable() map[string]string {
	all := p.meaning()
	for _, key := range uncompared {
		delete(all, key)
	}
	for name := range optimizer.Optimizers { // settings of an optimizer that the run does not use
		if name != p.spec.Training.Optimizer {
			maps.DeleteFunc(all, func(key, _ string) bool { return strings.HasPrefix(key, "training."+name+"_") })
		}
	}
	maps.Copy(all, p.spec.AdapterConfig().Compared())
	all["training.batch_size"] = fmt.Sprint(p.spec.Training.BatchSize)
	maps.DeleteFunc(all, func(key, v string) bool { return v == "" || v == withoutEffect[key] })
	return all
}

// Count returns the number of rows of a step, of their tokens, and of the trained tokens.
func (s RecipeStep) Count() (rows, tokens, trained int) {
	for _, b := range s.Batches {
		for _, r := range b {
			rows, tokens = rows+1, tokens+len(r.IDs)
			for _, l := range r.Labels[min(1, len(r.Labels)):] { // no position predicts the first token
				if l != dataset.Ignore {
					trained++
				}
			}
		}
	}
	return rows, tokens, trained
}
