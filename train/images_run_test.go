package train

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/infer/tasks"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// paints are the answers of drawnPictures and their colours.
var paints = map[string]color.RGBA{"red": {220, 30, 30, 255}, "green": {30, 180, 60, 255}, "blue": {40, 60, 220, 255},
	"white": {240, 240, 240, 255}}

// drawnPictures writes a data set of n pictures of coloured rectangles, whose question is their colour, and returns its
// file.
func drawnPictures(t testing.TB, dir, name string, n int, seed uint64) (path string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	names := []string{"red", "green", "blue", "white"}
	var rows strings.Builder
	for i := range n {
		answer := names[r.IntN(len(names))]
		m := image.NewRGBA(image.Rect(0, 0, 24, 24))
		back := color.RGBA{uint8(r.IntN(60)), uint8(r.IntN(60)), uint8(r.IntN(60)), 255}
		draw.Draw(m, m.Rect, image.NewUniform(back), image.Point{}, draw.Src)
		x, y := 1+r.IntN(6), 1+r.IntN(6)
		draw.Draw(m, image.Rect(x, y, x+12+r.IntN(4), y+12+r.IntN(4)), image.NewUniform(paints[answer]), image.Point{},
			draw.Src)
		var b bytes.Buffer
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		file := fmt.Sprintf("%s%d.png", name, i)
		if err := os.WriteFile(filepath.Join(dir, file), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rows, `{"conversations":[{"from":"human","value":"<image>Colour?"},{"from":"gpt","value":%q}],`+
			`"images":[%q],"answer":%q,"index":%d}`+"\n", answer, file, answer, slices.Index(names, answer))
	}
	path = filepath.Join(dir, name+".jsonl")
	if err := os.WriteFile(path, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rightAnswers returns the share of the pictures of a file that a model with an adapter names right: by its answers,
// and by the likeliest of all colours.
func rightAnswers(t testing.TB, device, name, model, adapterDir, file string) (written, chosen float64) {
	t.Helper()
	g, err := infer.NewGenerator(context.Background(), session.Options{Model: model, Device: device}, adapterDir,
		session.Env{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	gap := "" // what the template writes between the prompt and an answer
	if name == "idefics3" {
		gap = " "
	}
	share := [2]float64{}
	for i, kind := range []string{"{kind: exact_match, answer: '{{ answer }}', max_tokens: 8,",
		fmt.Sprintf("{kind: multiple_choice, gold_field: index, "+
			"choices: ['%sred', '%[1]sgreen', '%[1]sblue', '%[1]swhite'],", gap)} {
		task, err := tasks.Parse("t.yaml", fmt.Appendf(nil, "%s data: %s, prompt: 'Colour?', images_field: images}",
			kind, file))
		if err != nil {
			t.Fatal(err)
		}
		r, err := tasks.Run(context.Background(), g, task, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		share[i] = r.Metrics[0].Value
	}
	return share[0], share[1]
}

// pictureSpec is a run on the CPU over 160 drawn pictures in dir, with 20 others for validation.
func pictureSpec(t testing.TB, model, dir string, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.BaseModel, s.LoRA.TargetModules = model, adapter.Targets{adapter.AllLinear}
	s.LoRA.R, s.LoRA.Alpha = 16, 32
	s.Dataset.Format, s.Dataset.Fields = "", nil
	s.Dataset.Path = drawnPictures(t, dir, "train", 160, 1)
	s.Dataset.ValPath = drawnPictures(t, dir, "val", 20, 2)
	s.Dataset.MaxLength, s.Dataset.CacheDir = 128, filepath.Join(dir, "kept")
	s.Training.BatchSize, s.Training.LearningRate, s.Training.EvalSteps = 8, 1e-2, 60
	s.OutputDir = filepath.Join(dir, "run")
	return s
}

// pictureModels are the small models that train on drawn pictures.
func pictureModels(t testing.TB) map[string]string {
	t.Helper()
	return map[string]string{"idefics3": golden.Idefics3(t), "qwen3_vl": golden.Qwen3VL(t)}
}

// TestImagesLearn trains on drawn pictures: the held-out ones are named right afterwards, and a second run, which finds
// the embeddings on disk, trains the same adapter.
func TestImagesLearn(t *testing.T) {
	t.Parallel()
	for name, model := range pictureModels(t) {
		dir := t.TempDir()
		s := pictureSpec(t, model, dir, 120)
		mustStart(t, s, oneWorker)
		before, _ := rightAnswers(t, "cpu", name, model, "", s.Dataset.ValPath)
		after, chosen := rightAnswers(t, "cpu", name, model, s.OutputDir, s.Dataset.ValPath)
		t.Logf("%s: of the held-out pictures %.2f are named right before training, %.2f after; the likeliest colour "+
			"is right for %.2f", name, before, after, chosen)
		if before > 0.5 || after < 0.9 || chosen < 0.9 {
			t.Errorf("%s: right answers %.2f before, %.2f after, %.2f chosen", name, before, after, chosen)
		}
		files, err := filepath.Glob(filepath.Join(s.Dataset.CacheDir, "images", "*.f32"))
		if err != nil || len(files) != 180 {
			t.Errorf("%d embeddings are kept (%v), want one for each of 180 pictures", len(files), err)
		}
		again := s
		again.OutputDir = filepath.Join(dir, "again")
		mustStart(t, again, oneWorker)
		sameRun(t, "with embeddings from disk", s.OutputDir, again.OutputDir)
	}
}

// TestImagesOverRanks: two and four ranks, and a run that was interrupted, train the same adapter as one, with noise on
// the embeddings of tokens too.
func TestImagesOverRanks(t *testing.T) {
	t.Parallel()
	for name, model := range pictureModels(t) {
		t.Run(name, func(t *testing.T) {
			s := pictureSpec(t, model, t.TempDir(), 6)
			s.Training.EvalSteps, s.Training.LoggingSteps, s.Training.NEFTuneAlpha = 3, 1, 5
			s.Training.BatchSize, s.Training.GradientAccumulationSteps = 2, 4
			mustStart(t, s, oneWorker)
			sameOverRanksAndResume(t, s, 3)
		})
	}
}
