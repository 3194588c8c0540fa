package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// imageReference is what transformers and PEFT make of rows with images, by
// internal/golden/make_image_models.py.
type imageReference struct {
	Rows []struct {
		Messages json.RawMessage
		IDs      []int32
		Labels   []int32
		Places   []int // of Logits
		// Positions are the coordinates of each token; nil = its number alone.
		Positions [][3]int32
	}
	Loss    float64
	Trained int
	Targets string
	Answer  []int32 // greedy tokens after the first message of the first row
}

// imageRows writes the reference's rows, with their pictures beside them, and returns the file.
func imageRows(t testing.TB, r imageReference) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.Path(t, "images"))); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "{\"messages\":%s}\n", row.Messages)
	}
	path := filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// drawnAdapter writes the adapter that the reference's script draws, with the names and shapes of its gradients.
func drawnAdapter(t testing.TB, rank int, r imageReference, ref golden.Tensors) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`{"peft_type":"LORA","base_model_name_or_path":"","r":%d,"lora_alpha":%d,
		"lora_dropout":0.0,"target_modules":%q,"bias":"none"}`, rank, 2*rank, r.Targets)
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var tensors []weights.Tensor
	for _, name := range ref.Names() {
		if name, ok := strings.CutPrefix(name, "grad."); ok {
			shape := ref.Shape("grad." + name)
			var data []byte
			for _, x := range golden.Drawn(name, shape) {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
			tensors = append(tensors, weights.Tensor{Name: name, DType: weights.F32, Shape: shape, Data: data})
		}
	}
	if err := weights.Write(filepath.Join(dir, "adapter_model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestImagesEqualTransformers compares rows with images with transformers and PEFT: token ids, labels, logits, the loss
// and LoRA's gradients.
func TestImagesEqualTransformers(t *testing.T) {
	t.Run("idefics3", func(t *testing.T) { imagesEqualTransformers(t, golden.Idefics3(t), "idefics3", 3) })
	t.Run("gemma3", func(t *testing.T) { imagesEqualTransformers(t, golden.Gemma3Images(t), "gemma3_images", 2) })
	t.Run("mistral3", func(t *testing.T) {
		imagesEqualTransformers(t, golden.Mistral3Images(t), "mistral3_images", 2)
	})
	t.Run("qwen3_vl", func(t *testing.T) { imagesEqualTransformers(t, golden.Qwen3VL(t), "qwen3_vl_images", 2) })
}

// imagesEqualTransformers compares a model with the reference in a folder, whose adapter has a rank.
func imagesEqualTransformers(t *testing.T, model, folder string, rank int) {
	var r imageReference
	golden.JSON(t, golden.Path(t, folder+"/rows.json"), &r)
	ref := golden.Open(t, golden.Path(t, folder+"/numbers.safetensors"))
	ctx := context.Background()
	s, err := session.Open(ctx, session.Options{Model: model, Device: "cpu"}, session.Env{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := dataset.Default()
	data.Path, data.MaxLength, data.Shuffle, data.CacheDir = imageRows(t, r), 256, false, t.TempDir()
	set, report, err := s.LoadData(ctx, data, 1)
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != len(r.Rows) || s.Net.Images == nil {
		t.Fatal(set.Train.Len(), report)
	}
	var rows []dataset.Row
	for i, want := range r.Rows {
		row := set.Train.Row(i)
		if !slices.Equal(row.IDs, want.IDs) {
			t.Errorf("row %d: other ids than transformers':\n%v\n%v", i, row.IDs, want.IDs)
		}
		if !slices.Equal(row.Labels, want.Labels) {
			t.Errorf("row %d: other labels:\n%v\n%v", i, row.Labels, want.Labels)
		}
		if want.Positions != nil {
			if got, _ := session.Coordinates(row.IDs, row.Images); !slices.Equal(got, want.Positions) {
				t.Errorf("row %d: other positions:\n%v\n%v", i, got, want.Positions)
			}
		}
		rows = append(rows, row)
	}
	if t.Failed() {
		return
	}
	tokens := 0
	for _, row := range rows {
		tokens += len(row.IDs)
	}
	tokens = (tokens + 7) / 8 * 8
	shape := dataset.Shape{Sequences: 8, T: tokens, Budgets: []int{tokens}, Borders: 16, Longest: 256, Flat: true}
	batch, err := shape.Lay([][]dataset.Row{rows}, 0)
	if err != nil {
		t.Fatal(err)
	}
	planned := session.Shape{Tokens: tokens, Sequences: shape.Borders - 1, MaxLen: 256}
	dir := drawnAdapter(t, rank, r, ref)
	t.Run("logits", func(t *testing.T) {
		nw := network(t, s.Base, kernel.F32, nil, nil)
		nw.Images = s.Net.Images
		n, trained, in := nw.Declare("", planned)
		logits := n.Apply(kernel.MatMul{TransB: true}, nw.Hidden(n, in), nw.Head(n))
		plan, err := s.On.Compile(n.Builder, logits)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Hold(ctx, &session.Program{Net: n, Trained: trained, Plan: plan})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		fillBatch(t, m.Store, batch)
		if err := m.Runs[0].Run("main"); err != nil {
			t.Fatal(err)
		}
		got, err := m.Runs[0].Read(logits)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range r.Rows {
			want := ref.Floats(fmt.Sprintf("%d.logits", i))
			width := len(want) / len(row.Places)
			for k, at := range row.Places {
				for j, w := range want[k*width:][:width] {
					golden.Near(t, "logit", float64(got.F32()[(batch.Starts[i]+at)*width+j]), w, 1e-4)
				}
			}
		}
	})
	t.Run("evaluation", func(t *testing.T) {
		report, err := infer.Evaluate(ctx, infer.EvalOptions{Options: session.Options{Model: model, Device: "cpu"},
			AdapterDir: dir, Data: data, BatchSize: 1}, session.Env{Workers: 2})
		if err != nil || report.TrainedTokens != int64(r.Trained) {
			t.Fatal(err, report)
		}
		golden.Near(t, "evaluation loss", report.Loss, r.Loss, 1e-5*r.Loss)
	})
	t.Run("gradients", func(t *testing.T) {
		cfg := peftConfigOf(t, dir)
		nw := network(t, s.Base, kernel.F32, nil, &cfg)
		nw.Images = s.Net.Images
		ts := newTestStepOn(t, s.On, s.Base, nw, planned, Default(), dir)
		fillBatch(t, ts.memory, batch)
		objective.ShiftLabels(ts.ints(t, "labels"), batch.Labels, batch.CuSeqlens)
		ts.set(t, "loss scale", 1/float64(r.Trained))
		for _, segment := range []string{step.SegmentBegin, step.SegmentMicro} {
			if err := ts.run.Run(segment); err != nil {
				t.Fatal(err)
			}
		}
		golden.Near(t, "loss", ts.read(t, ts.Loss)[0], r.Loss, 1e-5*r.Loss)
		for _, p := range ts.Trained.Params {
			x, err := ts.memory.Tensor("gradient of " + p.Name)
			if err != nil {
				t.Fatal(err)
			}
			if d := distance(numbers(x), ref.Floats("grad.base_model.model."+p.Name)); !(d <= 1e-4) {
				t.Errorf("gradient of %s is off by %.3g", p.Name, d)
			}
		}
	})
}

// TestImageAnswersEqualTransformers: greedy tokens after a prompt with an image are those of transformers' generate.
// Positions of Qwen3-VL continue after the image's grid; in Gemma 3 only the prompt's image sees later tokens.
func TestImageAnswersEqualTransformers(t *testing.T) {
	t.Run("gemma3", func(t *testing.T) { imageAnswerEqualsTransformers(t, golden.Gemma3Images(t), "gemma3_images") })
	t.Run("mistral3", func(t *testing.T) {
		imageAnswerEqualsTransformers(t, golden.Mistral3Images(t), "mistral3_images")
	})
	t.Run("qwen3_vl", func(t *testing.T) { imageAnswerEqualsTransformers(t, golden.Qwen3VL(t), "qwen3_vl_images") })
}

func imageAnswerEqualsTransformers(t *testing.T, model, folder string) {
	var r imageReference
	golden.JSON(t, golden.Path(t, folder+"/rows.json"), &r)
	ctx := context.Background()
	g, err := infer.NewGenerator(ctx, session.Options{Model: model, Device: "cpu"}, "", oneWorker.Env)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var messages []json.RawMessage
	if err := json.Unmarshal(r.Rows[0].Messages, &messages); err != nil {
		t.Fatal(err)
	}
	conv, err := chat.Read(chat.Raw{Key: "messages", WithImages: true,
		Messages: fmt.Appendf(nil, "[%s]", messages[0])})
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.ChatPrompt(conv, "")
	if err != nil {
		t.Fatal(err)
	}
	if p, err = g.ShowImages(p, [][]byte{golden.ReadFile(t, golden.Path(t, "images/rgb.png"))}, ""); err != nil {
		t.Fatal(err)
	}
	text, err := g.Continue(ctx, p, infer.GenerateOptions{MaxTokens: len(r.Answer)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(text.IDs, r.Answer) {
		t.Errorf("%v, want %v", text.IDs, r.Answer)
	}
}

// fillBatch writes a batch into a plan's memory.
func fillBatch(t *testing.T, m graph.Store, batch dataset.Batch) {
	t.Helper()
	b, err := session.BindBatch(m, "")
	if err != nil {
		t.Fatal(err)
	}
	b.Fill(batch, session.Part{})
	if err := b.Put(); err != nil {
		t.Fatal(err)
	}
}
