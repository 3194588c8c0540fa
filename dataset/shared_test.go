package dataset_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// shared is the folder of data that is not in the repository.
func shared(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("TRAINER_DATA")
	if dir == "" {
		t.Skip("TRAINER_DATA is unset: it names the folder with the shared data and goldens")
	}
	return dir
}

// TestGoldenText rebuilds the 100 rows of text that the SmolLM2 curves were trained on. Their labels differ from ours at
// position 0 alone, which nothing predicts.
func TestGoldenText(t *testing.T) {
	dir := shared(t)
	tok, err := tokenizer.Load(filepath.Join(dir, "data/tokenizers/smollm-135m"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := dataset.Default()
	cfg.Path, cfg.MaxLength, cfg.Shuffle, cfg.PadTo = filepath.Join(dir, "data/datasets/mlx-wikisql/train.jsonl"), 128, false, dataset.PadMaxLength
	cfg.OnTruncated = dataset.TruncatedKeep // as the reference was made
	set, _, err := dataset.Load(context.Background(), cfg, endIs2{tok})
	if err != nil {
		t.Fatal(err)
	}
	loader, err := set.TrainLoader(1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "goldens/smollm2/batches.safetensors")
	ids, labels := tensor(t, path, "input_ids", 100), tensor(t, path, "labels", 100)
	for s := range 100 {
		window, _, err := loader.NextWindow(1)
		if err != nil {
			t.Fatal(err)
		}
		b := window[0]
		want := labels[s*goldenT : (s+1)*goldenT]
		want[0] = dataset.Ignore
		if got := ids[s*goldenT:][:b.Tokens]; !slices.Equal(b.IDs[:b.Tokens], got) || !slices.Equal(b.Labels, want) {
			t.Errorf("row %d differs:\n%v\n%v", s, b.IDs, got)
		}
	}
}

// endIs2 is the model's end token, <|im_end|>; this copy of the tokenizer names another.
type endIs2 struct{ *tokenizer.Tokenizer }

func (endIs2) EOS() (int32, bool) { return 2, true }

// TestPeersTokens reads rows that Axolotl tokenised.
func TestPeersTokens(t *testing.T) {
	dir := shared(t)
	tok, err := tokenizer.Load(filepath.Join(dir, "data/tokenizers/tinyllama-1.1b-chat"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]int64{"conversation.tokenized.json": {1970, 1798}, "conversation.tokenized_llama2chat.json": {2056, 1793}} {
		cfg := dataset.Default()
		cfg.Path, cfg.MaxLength = filepath.Join(dir, "data/datasets/axolotl-fixtures", name), 8192
		_, report, err := dataset.Load(context.Background(), cfg, tok)
		if err != nil {
			t.Error(err)
		} else if report.Format != "tokenized" || report.Kept != 1 || report.TotalTokens != want[0] || report.TrainedTokens != want[1] {
			t.Errorf("%s: %v", name, report)
		}
	}
}
