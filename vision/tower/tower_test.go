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
	dir := golden.Idefics3(t)
	w, err := weights.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p, err := vision.ReadProcessor(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	tower, err := Open(golden.ReadFile(t, dir, "config.json"), w, p)
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
	want := golden.Open(t, golden.Path(t, "idefics3/numbers.safetensors")).Floats("0.embeddings")
	if len(got) != len(want) || len(want) != len(tiles)*p.Tokens*tower.Width() {
		t.Fatal(len(got), len(want))
	}
	for i := range want {
		golden.Near(t, "embedding", float64(got[i]), want[i], 1e-5)
		if t.Failed() {
			t.Fatal("at", i)
		}
	}
}
