package tower

import (
	"context"
	"os"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/vision"
)

// TestEmbeddingsEqualTransformers compares the embeddings of an image's tokens with get_image_features.
func TestEmbeddingsEqualTransformers(t *testing.T) {
	for _, c := range []struct {
		dir, numbers string
		tokens, each int // each of these tokens is in the reference
	}{
		{golden.Idefics3(t), "idefics3/numbers.safetensors", 28, 1},
		{golden.Gemma3Images(t), "gemma3_images/numbers.safetensors", 9, 1},
		{golden.Mistral3Images(t), "mistral3_images/numbers.safetensors", 12, 1},
		{golden.Qwen25VL(t), "qwen2_5_vl_images/numbers.safetensors", 15, 1},
		{golden.Qwen3VL(t), "qwen3_vl_images/numbers.safetensors", 15, 4},
	} {
		w, err := weights.OpenDir(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		p, err := vision.ReadProcessor(os.DirFS(c.dir))
		if err != nil {
			t.Fatal(err)
		}
		tower, err := Open(golden.ReadFile(t, c.dir, "config.json"), w, p)
		if err != nil {
			t.Fatal(err)
		}
		m, _, err := vision.Decode(golden.ReadFile(t, golden.Path(t, "images/rgb.png")))
		if err != nil {
			t.Fatal(err)
		}
		tiles, _, err := p.Tiles(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tower.Embed(context.Background(), tiles)
		if err != nil {
			t.Fatal(err)
		}
		want := golden.Open(t, golden.Path(t, c.numbers)).Floats("0.embeddings")
		width := tower.Width()
		if len(got) != c.tokens*width || len(want) != (c.tokens+c.each-1)/c.each*width {
			t.Fatal(len(got), len(want))
		}
		for i := range want {
			at := i/width*c.each*width + i%width
			golden.Near(t, c.numbers, float64(got[at]), want[i], 1e-5)
			if t.Failed() {
				t.Fatal("at", i)
			}
		}
	}
}
