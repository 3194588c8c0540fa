package dataset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/text/chat"
)

// TestWorkersAndConversations: what is learned of a template from one conversation and used for the next must not depend
// on which comes first: the cache file and the report are those of one worker.
func TestWorkersAndConversations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{"once", " upon", "a  time", "\n", "<|im_end|>", "é", "", " ", "there was", "</s>", "<think>", "a cat.\n\n"}
	text := func() string {
		var b strings.Builder
		for range rng.IntN(8) {
			b.WriteString(words[rng.IntN(len(words))])
		}
		return b.String()
	}
	var file bytes.Buffer
	for range 3000 {
		var messages []map[string]string
		if rng.IntN(3) == 0 {
			messages = append(messages, map[string]string{"role": "system", "content": text()})
		}
		for range 1 + rng.IntN(3) {
			messages = append(messages, map[string]string{"role": "user", "content": text()}, map[string]string{"role": "assistant", "content": text()})
		}
		line, err := json.Marshal(map[string]any{"messages": messages})
		if err != nil {
			t.Fatal(err)
		}
		file.Write(append(line, '\n'))
	}
	templates := []string{"chatml", "zephyr"}
	if dir := os.Getenv("TRAINER_DATA"); dir != "" { // templates that trim and rewrite messages
		for _, name := range []string{"axolotl-gemma", "axolotl-llama3", "axolotl-phi_3"} {
			templates = append(templates, filepath.Join(dir, "data/chat_templates", name+".jinja"))
		}
	}
	model := fstest.MapFS{"tokenizer_config.json": {Data: []byte(`{"bos_token":"<s>","eos_token":"</s>"}`)}}
	for _, template := range templates {
		var want []byte
		wantReport := ""
		for _, workers := range []int{1, 2, 3, 8} {
			dir := t.TempDir()
			cfg := dataset.Default()
			cfg.Path, cfg.CacheDir, cfg.MaxLength, cfg.Workers = filepath.Join(dir, "d.jsonl"), filepath.Join(dir, "cache"), 256, workers
			cfg.ChatTemplate = template
			cfg.Chat = func() (*chat.Sources, error) { return chat.Find(model) }
			if err := os.WriteFile(cfg.Path, file.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			_, report, err := dataset.Load(context.Background(), cfg, stories(t))
			if err != nil { // a template that refuses some of them
				said := strings.ReplaceAll(err.Error(), dir, "")
				if wantReport == "" {
					wantReport = said
					t.Log(said)
				}
				if said != wantReport {
					t.Errorf("%s, %d workers: %s\nwant %s", template, workers, said, wantReport)
				}
				continue
			}
			names, err := filepath.Glob(filepath.Join(cfg.CacheDir, "*.tokens"))
			if err != nil || len(names) != 1 {
				t.Fatal(names, err)
			}
			got, err := os.ReadFile(names[0])
			if err != nil {
				t.Fatal(err)
			}
			said := strings.ReplaceAll(fmt.Sprint(report), dir, "")
			if wantReport == "" {
				want, wantReport = got, said
			}
			if !bytes.Equal(got, want) || said != wantReport {
				t.Errorf("%s, %d workers: the files are equal: %v; the report\n%s\nwant\n%s", template, workers, bytes.Equal(got, want), said, wantReport)
			}
		}
	}
}
