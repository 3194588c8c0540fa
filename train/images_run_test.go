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
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
)

// paints are the answers of drawnPictures and their colours.
var paints = map[string]color.RGBA{"red": {220, 30, 30, 255}, "green": {30, 180, 60, 255}, "blue": {40, 60, 220, 255},
	"white": {240, 240, 240, 255}}

// drawnPictures writes a data set of n pictures of coloured rectangles, whose question is their colour, and returns its
// file and the answers.
func drawnPictures(t testing.TB, dir, name string, n int, seed uint64) (path string, answers []string) {
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
			`"images":[%q]}`+"\n", answer, file)
		answers = append(answers, answer)
	}
	path = filepath.Join(dir, name+".jsonl")
	if err := os.WriteFile(path, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, answers
}

// rightAnswers returns how many pictures a model with an adapter names right.
func rightAnswers(t testing.TB, device, model, adapterDir, dir, name string, answers []string) (right int) {
	t.Helper()
	ctx, o := context.Background(), session.Options{Model: model, Device: device}
	for i, answer := range answers {
		g, err := infer.NewGenerator(ctx, o, adapterDir, session.Env{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		conv, err := chat.Read(chat.Raw{Key: "messages", WithImages: true, Messages: []byte(
			`[{"role":"user","content":[{"type":"image","image":"x"},{"type":"text","text":"Colour?"}]}]`)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.ChatPrompt(conv, "")
		if err != nil {
			t.Fatal(err)
		}
		file := golden.ReadFile(t, dir, fmt.Sprintf("%s%d.png", name, i))
		if p, err = g.ShowImages(p, [][]byte{file}, ""); err != nil {
			t.Fatal(err)
		}
		text, err := g.Continue(ctx, p, infer.GenerateOptions{MaxTokens: 8}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(text.Text) == answer {
			right++
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return right
}

// pictureSpec is a run on the CPU over 160 drawn pictures in dir, with 20 others for validation, whose answers it
// returns.
func pictureSpec(t testing.TB, model, dir string, steps int) (s Spec, answers []string) {
	t.Helper()
	s = testSpec(t, steps)
	s.BaseModel, s.LoRA.TargetModules = model, adapter.Targets{adapter.AllLinear}
	s.LoRA.R, s.LoRA.Alpha = 16, 32
	s.Dataset.Format, s.Dataset.Fields = "", nil
	s.Dataset.Path, _ = drawnPictures(t, dir, "train", 160, 1)
	s.Dataset.ValPath, answers = drawnPictures(t, dir, "val", 20, 2)
	s.Dataset.MaxLength, s.Dataset.CacheDir = 128, filepath.Join(dir, "kept")
	s.Training.BatchSize, s.Training.LearningRate, s.Training.EvalSteps = 8, 1e-2, 60
	s.OutputDir = filepath.Join(dir, "run")
	return s, answers
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
		s, answers := pictureSpec(t, model, dir, 120)
		mustStart(t, s, oneWorker)
		before := rightAnswers(t, "cpu", model, "", dir, "val", answers)
		after := rightAnswers(t, "cpu", model, s.OutputDir, dir, "val", answers)
		t.Logf("%s: of %d held-out pictures %d are named right before training, %d after", name, len(answers), before,
			after)
		if before > len(answers)/2 || after < len(answers)*9/10 {
			t.Errorf("%s: %d right answers before, %d after", name, before, after)
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
			s, _ := pictureSpec(t, model, t.TempDir(), 6)
			s.Training.EvalSteps, s.Training.LoggingSteps, s.Training.NEFTuneAlpha = 3, 1, 5
			s.Training.BatchSize, s.Training.GradientAccumulationSteps = 2, 4
			mustStart(t, s, oneWorker)
			sameOverRanksAndResume(t, s, 3)
		})
	}
}
