package infer

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
)

// TestSmolLM2ConversationsLoseAsTransformers: the mean loss over the trained tokens of a batch of conversations,
// written and masked by the model's own template, is that of transformers with its assistant mask.
func TestSmolLM2ConversationsLoseAsTransformers(t *testing.T) {
	dir := golden.SmolLM2(t)
	var want struct {
		Rows, Trained int
		Loss          float64
	}
	golden.JSON(t, golden.Path(t, "chat/loss.json"), &want)
	var talks []struct {
		Messages json.RawMessage `json:"messages"`
	}
	golden.JSON(t, golden.Path(t, "chat/talks.json"), &talks)
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var lines strings.Builder
	for _, talk := range talks[:want.Rows] {
		line, err := json.Marshal(talk)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	cfg := dataset.Default()
	cfg.Path, cfg.Shuffle = "talks.jsonl", false
	cfg.Chat = func() (*chat.Sources, error) { return chat.Find(b.Folder) }
	set, report, err := dataset.LoadFS(context.Background(),
		fstest.MapFS{"talks.jsonl": {Data: []byte(lines.String())}}, cfg, b.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	if report.TrainedTokens != int64(want.Trained) || report.Kept != want.Rows {
		t.Fatalf("%v: want %d trained tokens of %d rows", report, want.Trained, want.Rows)
	}
	v := evaluatorOf(t, b, report.Longest)
	sum := 0.0
	for i := range set.Train.Len() {
		row := set.Train.Row(i)
		loss, _ := rowLoss(t, v, report.Longest, row.IDs, row.Labels)
		sum += loss
	}
	golden.Near(t, "mean loss of a batch of conversations", sum/float64(want.Trained), want.Loss, 1e-4)
	t.Logf("mean loss %.6f, transformers %.6f", sum/float64(want.Trained), want.Loss)
}
