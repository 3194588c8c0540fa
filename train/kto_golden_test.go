package train

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// answer is a labelled answer as TRL tokenised it, with the answer that follows its prompt in the mismatched sequence.
type answer struct {
	Prompt     []int32 `json:"prompt_ids"`
	Completion []int32 `json:"completion_ids"`
	Other      []int32 `json:"KL_completion_ids"`
	Label      bool
}

// answerBatches reads labelled answers with a data set's own loader, which adds the mismatched sequences, in batches of
// so many rows.
func answerBatches(t *testing.T, b *session.Base, answers []answer, size int) (all []dataset.Batch) {
	t.Helper()
	var text []byte
	for _, a := range answers {
		ids := slices.Concat(a.Prompt, a.Completion)
		labels := slices.Clone(ids)
		for i := range a.Prompt {
			labels[i] = dataset.Ignore
		}
		line, err := json.Marshal(map[string]any{"input_ids": ids, "labels": labels, "label": a.Label})
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	c := dataset.Default()
	c.Path, c.Preferences, c.Unpaired, c.Mismatched = "rows.jsonl", true, true, size
	c.MaxLength, c.Shuffle, c.CacheDir = 128, false, ""
	set, _, err := dataset.LoadFS(context.Background(), fstest.MapFS{"rows.jsonl": {Data: text}}, c, b.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	loader, err := set.TrainLoader(size)
	if err != nil {
		t.Fatal(err)
	}
	for batch, err := range loader.Epoch(0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch)
	}
	return all
}

// goldenBatch returns the batch of goldens of a trainer: pairs, or for KTO labelled answers. The sequences of these are
// TRL's, row for row.
func goldenBatch(t *testing.T, trainer string) dataset.Batch {
	if trainer != "kto" {
		return goldenPairs(t, trainer)
	}
	file := golden.Open(t, golden.Path(t, "preferences/batches.safetensors"))
	part := func(prefix string, r int) (ids, labels []int32) {
		T, n := file.Shape("kto." + prefix + "input_ids")[1], 0
		for _, m := range file.Ints("kto." + prefix + "attention_mask")[r*T : (r+1)*T] {
			n += int(m)
		}
		return file.Ints("kto." + prefix + "input_ids")[r*T:][:n], file.Ints("kto." + prefix + "labels")[r*T:][:n]
	}
	b := dataset.Batch{CuSeqlens: []int32{0}, Groups: []int32{0}}
	for r, label := range file.Ints("kto.label") {
		b.Rows, b.Starts = append(b.Rows, r), append(b.Starts, len(b.IDs))
		b.Desirable = append(b.Desirable, dataset.Desirability(2*label-1))
		for _, prefix := range []string{"", "KL_"} {
			ids, labels := part(prefix, r)
			b.IDs, b.Labels = append(b.IDs, ids...), append(b.Labels, labels...)
			for i := range ids {
				b.Positions = append(b.Positions, int32(i))
			}
			b.Segments = append(b.Segments, int32(len(b.CuSeqlens)-1))
			b.CuSeqlens = append(b.CuSeqlens, int32(len(b.IDs)))
		}
		b.Groups = append(b.Groups, int32(len(b.Segments)))
	}
	return b
}

// curveAnswers are the batches of the curve, made of TRL's rows by the data set's loader.
func curveAnswers(t *testing.T) []dataset.Batch {
	t.Helper()
	var all struct{ KTO []answer }
	golden.JSON(t, golden.Path(t, "preferences/curve_rows.json"), &all)
	batches := answerBatches(t, stories(t), all.KTO, 4)
	for k, b := range batches {
		for i := range b.Rows {
			a, from := all.KTO[4*k+i], b.CuSeqlens[b.Segments[b.Groups[i]+1]]
			ids := b.IDs[from:b.CuSeqlens[b.Segments[b.Groups[i]+1]+1]]
			want := slices.Concat(a.Prompt, a.Other)
			if !slices.Equal(ids, want[:min(len(want), 128)]) {
				t.Fatalf("row %d has the mismatched sequence %v, TRL %v", 4*k+i, ids, want)
			}
		}
	}
	return batches
}

// TestKTOEqualsTRL compares KTO's losses with TRL's trainer: the loss, the logged numbers and the gradients, in float32
// and in float64. Only the numbers of how many answers have a label are not among TRL's.
func TestKTOEqualsTRL(t *testing.T) {
	t.Parallel()
	b, batch, all := stories(t), goldenBatch(t, "kto"), preferenceGoldens(t, "kto")
	if len(all) < 4 {
		t.Errorf("%d variants", len(all))
	}
	for _, variant := range slices.Sorted(maps.Keys(all)) {
		want := all[variant]
		want.Metrics["share/chosen"], want.Metrics["share/rejected"] = 3./5, 2./5
		comparePairs(t, b, "kto", variant, want, preferenceObjectives["kto"](t, want.Args), batch)
	}
}
