//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// headPlace has runs of a classifier and of an embedding model, and the classifier's rows.
func headPlace(t *testing.T) (dir string, texts, labels []string) {
	t.Helper()
	dir = t.TempDir()
	words := []string{"happy", "sad", "angry"}
	var rows, pairs strings.Builder
	for i := range 40 {
		texts, labels = append(texts, fmt.Sprintf("The %s dog number %d.", words[i%3], i)), append(labels, words[i%3])
		fmt.Fprintf(&rows, "{\"text\": %q, \"label\": %q}\n", texts[i], labels[i])
		fmt.Fprintf(&pairs, "{\"anchor\": \"The %s dog\", \"positive\": \"It was %s, %d.\"}\n", words[i%3],
			words[i%3], i)
	}
	config := func(task, objective, data, more string) string {
		return fmt.Sprintf("base_model: embedded:stories260K\ntask: %s\ndataset: {path: %s}\ntraining: "+
			"{objective: %s, learning_rate: 5e-3, max_steps: 6, batch_size: 4}\ndevice: cpu\n%s", task, data, objective,
			more)
	}
	for name, text := range map[string]string{"rows.jsonl": rows.String(), "pairs.jsonl": pairs.String(),
		"class.yaml": config("sequence_classification", "classification", "rows.jsonl",
			"classification: {labels: [happy, sad, angry]}\noutput_dir: class\n"),
		"vector.yaml": config("embedding", "contrastive", "pairs.jsonl", "output_dir: vector\n"),
		"causal.yaml": "base_model: embedded:stories260K\ndataset: {path: rows.jsonl, format: text}\n" +
			"training: {max_steps: 1}\ndevice: cpu\noutput_dir: causal\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"class", "vector"} {
		if code, _, errOut := trainer(t, dir, nil, "", "train", name+".yaml"); code != 0 {
			t.Fatal(errOut)
		}
	}
	return dir, texts, labels
}

// postJSON posts a body to a path of the server and decodes the answer.
func (s *served) postJSON(t *testing.T, path, body string, to any) int {
	t.Helper()
	a, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	raw, _ := io.ReadAll(a.Body)
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatalf("%d %s", a.StatusCode, raw)
	}
	return a.StatusCode
}

// TestServeHeads: the scores that the server gives have the loss of `trainer eval`, and one server answers for adapters
// of different tasks.
func TestServeHeads(t *testing.T) {
	dir, texts, labels := headPlace(t)
	code, out, errOut := trainer(t, dir, nil, "", "eval", "class.yaml", "--adapter", "class", "--json")
	var report struct {
		Loss float64 `json:"eval_loss"`
	}
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
		t.Fatal(code, err, errOut)
	}
	s := startServer(t, dir, nil, "--adapter", "class", "--adapter", "vector", "--max-length", "64")
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Data []struct {
			Label string
			Probs []float64
		}
	}
	if code := s.postJSON(t, "/classify", fmt.Sprintf(`{"model":"class","input":%s}`, input), &got); code != 200 ||
		len(got.Data) != len(texts) {
		t.Fatal(code, got)
	}
	loss := 0.
	for i, d := range got.Data {
		loss -= math.Log(d.Probs[map[string]int{"happy": 0, "sad": 1, "angry": 2}[labels[i]]]) / float64(len(texts))
	}
	if !(math.Abs(loss-report.Loss) <= 1e-5) {
		t.Errorf("the server's probabilities have a loss of %v, eval has %v", loss, report.Loss)
	}
	var vectors struct {
		Data []struct{ Embedding []float64 }
	}
	if code := s.postJSON(t, "/embeddings", `{"model":"vector","input":["a dog","a cat"]}`, &vectors); code != 200 ||
		len(vectors.Data) != 2 || len(vectors.Data[0].Embedding) != 64 {
		t.Error(code, vectors)
	}
	if code := s.end(syscall.SIGTERM); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "merge", "--adapter", "class", "--out", "merged"); code != 0 {
		t.Fatal(errOut)
	}
	merged := startServer(t, dir, nil, "--model", "merged", "--max-length", "64")
	was := got.Data[0]
	body := fmt.Sprintf(`{"model":"merged","input":%q}`, texts[0])
	if code := merged.postJSON(t, "/classify", body, &got); code != 200 ||
		got.Data[0].Label != was.Label || !(math.Abs(got.Data[0].Probs[0]-was.Probs[0]) <= 1e-4) {
		t.Errorf("the merged folder: %d %+v, want %+v", code, got, was)
	}
	base := startServer(t, dir, nil, "--model", "embedded:stories260K", "--pooling", "mean", "--max-length", "64")
	if code := base.postJSON(t, "/embeddings", `{"model":"stories260K","input":"a dog"}`, &vectors); code != 200 ||
		len(vectors.Data) != 1 {
		t.Errorf("vectors of a causal model: %d %+v", code, vectors)
	}
}

// TestServeRefusesMixtures: adapters that write text and adapters that score need two servers, and flags of text are
// refused.
func TestServeRefusesMixtures(t *testing.T) {
	dir, _, _ := headPlace(t)
	if code, _, errOut := trainer(t, dir, nil, "", "train", "causal.yaml"); code != 0 {
		t.Fatal(errOut)
	}
	for want, args := range map[string][]string{
		"adapter causal writes text, and adapter class gives scores or vectors: serve them by two servers": {
			"--adapter", "causal"},
		"--slots: adapter class gives scores or vectors and writes no text: leave the flag out": {"--slots", "4"},
	} {
		code, _, errOut := trainer(t, dir, nil, "", append([]string{"serve", "--port", "0", "--adapter", "class"},
			args...)...)
		if code != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%v: %d %s, want %s", args, code, errOut, want)
		}
	}
}
