package train

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/infer"
)

// llamaVectors asks llama.cpp for the vectors of texts, by the pooling that the file names.
const llamaVectors = `
import json, sys
import xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.embedding, p.n_ctx, p.n_parallel, p.warmup, p.n_gpu_layers = sys.argv[1], True, 512, 1, False, 0
reply = xllamacpp.Server(p).handle_embeddings({"input": json.loads(sys.argv[2])})
reply = json.loads(reply) if isinstance(reply, str) else reply
print(json.dumps([d["embedding"] for d in reply["data"]]))
`

// TestVectorsInGGUF checks that merged embedding models become GGUF files that name their pooling, and that heads and
// adapters are refused. With TRAINER_PYTHON llama.cpp gives the vectors of base and adapter.
func TestVectorsInGGUF(t *testing.T) {
	all := headRuns(t)
	runs := map[string]Spec{"mean": all["mean"], "last": all["last"], "class": all["class"]}
	folders := mergedHeads(t, runs)
	for name, pooling := range map[string]uint32{"mean": 1, "last": 3} {
		out := filepath.Join(t.TempDir(), name+".gguf")
		if _, err := export.Export(t.Context(), export.Options{Format: "gguf", DType: "f32", Model: folders[name],
			Out: out}, oneWorker.Env); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(f.KVs, func(kv gguf.KV) bool { return kv.Key == "llama.pooling_type" })
		if at < 0 || f.KVs[at].Value != pooling {
			t.Errorf("%s: the file names no pooling %d", name, pooling)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		t.Run("llama.cpp "+name, func(t *testing.T) {
			python := pythonWith(t, "xllamacpp")
			texts := []string{"Once upon a time", "The little girl was happy."}
			var got [][]float64
			runPython(t, python, llamaVectors, &got, out, `["`+strings.Join(texts, `", "`)+`"]`)
			p := predictorOf(t, runs, name)
			for i, text := range texts {
				own := predict(t, p, []infer.Passage{{IDs: p.Base.Tokenizer.IDs(text, true)}})
				infer.Normalise(own[0])                      // as llama.cpp always does
				samePassages(t, name, own, got[i:i+1], 2e-3) // its keys and values are fp16
			}
		})
	}
	for what, o := range map[string]export.Options{
		"the model has a classification head of 3 scores, and llama.cpp has none for model_type llama: trainer serve": {
			Model: folders["class"]},
		"the adapter has task_type FEATURE_EXTRACTION: merge it (trainer merge --adapter ": {
			Model: runs["mean"].BaseModel, Adapter: runs["mean"].OutputDir},
	} {
		o.Format, o.Out = "gguf", filepath.Join(t.TempDir(), "none.gguf")
		if _, err := export.Export(t.Context(), o, oneWorker.Env); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
}
