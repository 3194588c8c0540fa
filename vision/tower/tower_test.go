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
		tokens       int
	}{
		{golden.Idefics3(t), "idefics3/numbers.safetensors", 28},
		{golden.Qwen3VL(t), "qwen3_vl_images/numbers.safetensors", 15},
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
		if len(got) != len(want) || len(want) != c.tokens*tower.Width() {
			t.Fatal(len(got), len(want))
		}
		for i := range want {
			golden.Near(t, c.numbers, float64(got[i]), want[i], 1e-5)
			if t.Failed() {
				t.Fatal("at", i)
			}
		}
	}
}
