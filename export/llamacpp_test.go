package export

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// askLlamaCPP loads files and says what llama.cpp makes of texts and ids: greedy ids and tokens.
const askLlamaCPP = `
import json, sys
sys.path.insert(0, sys.argv[1])
import llamacpp
q = json.load(sys.stdin)
out = []
for case in q["cases"]:
    m = llamacpp.Llama(case["model"], lora=case.get("lora") or None)
    new, leads = zip(*[m.greedy(p, q["new"]) for p in q["prompts"]])
    out.append({"new": list(new), "ids": [m.tokenize(t, True) for t in q["texts"]]})
    m.close()
print(json.dumps(out))
`

type llamaAnswer struct {
	New [][]int32 `json:"new"`
	IDs [][]int32 `json:"ids"`
}

// withLlamaCPP is a Python that has llama.cpp; a test is skipped where there is none.
func withLlamaCPP(t *testing.T) string {
	t.Helper()
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import numpy, xllamacpp").Run(); err != nil {
		t.Skipf("%s has no xllamacpp and numpy; TRAINER_PYTHON names one that has", python)
	}
	return python
}

// ask has a script that imports llamacpp answer a question, both in JSON.
func ask(t *testing.T, python, script string, question, answer any) {
	t.Helper()
	raw, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", script, filepath.Join(golden.Root(t), "scripts"))
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(raw), &said
	if raw, err = cmd.Output(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		t.Fatal(err)
	}
}

// TestLlamaCPPReadsExports: llama.cpp itself, as the Python package xllamacpp has it, loads a model, a merged model and
// an adapter, writes transformers' greedy texts, and cuts texts into Hugging Face's tokens. TRAINER_PYTHON names a
// Python with xllamacpp and numpy.
func TestLlamaCPPReadsExports(t *testing.T) {
	python := withLlamaCPP(t)
	dir := t.TempDir()
	adapterDir := golden.Path(t, "train/lora/final")
	file := func(o Options) string {
		o.Model = golden.StoriesDir(t)
		o.Out = filepath.Join(dir, strings.ReplaceAll(o.Format+o.DType+filepath.Base(o.Adapter), "/", "-")+".gguf")
		if _, err := Export(context.Background(), o, session.Env{}); err != nil {
			t.Fatal(err)
		}
		return o.Out
	}
	type run struct {
		Prompt []int32 `json:"prompt_ids"`
		New    []int32 `json:"new_ids"`
	}
	var texts struct{ Base, Adapter []run }
	golden.JSON(t, golden.Path(t, "generate/generate.json"), &texts)
	var corpus []string
	var tokens struct {
		Rows []struct {
			IDs []int32 `json:"ids_special"`
		}
	}
	golden.JSON(t, golden.Path(t, "tokenizers/corpus.json"), &corpus)
	golden.JSON(t, golden.Path(t, "tokenizers/stories260K.golden.json"), &tokens)
	prompts := [][]int32{}
	for _, r := range texts.Base {
		prompts = append(prompts, r.Prompt)
	}
	f16 := file(Options{Format: "gguf", DType: "f16"})
	cases := []map[string]string{
		{"model": file(Options{Format: "gguf", DType: "f32"})}, {"model": f16},
		{"model": file(Options{Format: "gguf", DType: "f32", Adapter: adapterDir})},
		{"model": f16, "lora": file(Options{Format: "gguf-lora", DType: "f32", Adapter: adapterDir})},
		{"model": file(Options{Format: "gguf", DType: "q4_k_m"})},
	}
	var answers []llamaAnswer
	ask(t, python, askLlamaCPP, map[string]any{"cases": cases, "prompts": prompts, "new": len(texts.Base[0].New),
		"texts": corpus}, &answers)
	for i, a := range answers {
		want := texts.Base
		if i == 2 || i == 3 {
			want = texts.Adapter
		}
		for k, r := range want {
			if i < 4 && !slices.Equal(a.New[k], r.New) {
				t.Errorf("case %d, prompt %d: llama.cpp writes %v, transformers %v", i, k, a.New[k], r.New)
			}
		}
		for k, row := range tokens.Rows {
			if k < len(a.IDs) && !slices.Equal(a.IDs[k], row.IDs) {
				t.Errorf("case %d: the ids of %q are %v in llama.cpp, %v in Hugging Face tokenizers", i, corpus[k],
					a.IDs[k], row.IDs)
			}
		}
	}
}
