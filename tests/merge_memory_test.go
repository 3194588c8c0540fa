//go:build linux

package tests

import (
	le "encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// shape is a llama by its sizes.
type shape struct{ hidden, inner, layers, vocab, heads int }

// sparseModel writes a model folder of a shape in bf16 whose weights are a hole: zeros that take no disk. It returns their bytes.
func sparseModel(t testing.TB, dir string, s shape) (size int64) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header := map[string]entry{}
	add := func(name string, dims ...int) {
		n := int64(2)
		for _, d := range dims {
			n *= int64(d)
		}
		header[name] = entry{"BF16", dims, [2]int64{size, size + n}}
		size += n
	}
	add("model.embed_tokens.weight", s.vocab, s.hidden)
	add("lm_head.weight", s.vocab, s.hidden)
	add("model.norm.weight", s.hidden)
	for l := range s.layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		for _, name := range []string{"q", "k", "v", "o"} {
			add(p+"self_attn."+name+"_proj.weight", s.hidden, s.hidden)
		}
		add(p+"mlp.gate_proj.weight", s.inner, s.hidden)
		add(p+"mlp.up_proj.weight", s.inner, s.hidden)
		add(p+"mlp.down_proj.weight", s.hidden, s.inner)
		add(p+"input_layernorm.weight", s.hidden)
		add(p+"post_attention_layernorm.weight", s.hidden)
	}
	raw, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(le.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(8+len(raw)) + size); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d, "vocab_size": %d,
"num_attention_heads": %d, "num_key_value_heads": %d, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
"tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}`, s.hidden, s.inner, s.layers, s.vocab, s.heads, s.heads)
	for name, data := range map[string][]byte{"config.json": []byte(config), "tokenizer.json": golden.ReadFile(t, golden.StoriesDir(t), "tokenizer.json")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return size
}

// sparseAdapter adapts all linear layers of such a model.
func sparseAdapter(t testing.TB, dir string, s shape, rank int) {
	t.Helper()
	c := adapter.Default()
	c.R, c.TargetModules = rank, adapter.Targets{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}
	var params []adapter.Param
	for l := range s.layers {
		for _, m := range []struct {
			name    string
			in, out int
		}{{"self_attn.q_proj", s.hidden, s.hidden}, {"self_attn.k_proj", s.hidden, s.hidden}, {"self_attn.v_proj", s.hidden, s.hidden}, {"self_attn.o_proj", s.hidden, s.hidden},
			{"mlp.gate_proj", s.hidden, s.inner}, {"mlp.up_proj", s.hidden, s.inner}, {"mlp.down_proj", s.inner, s.hidden}} {
			path := fmt.Sprintf("model.layers.%d.%s", l, m.name)
			for _, p := range []adapter.Param{{Name: path + ".lora_A.weight", Shape: []int{rank, m.in}}, {Name: path + ".lora_B.weight", Shape: []int{m.out, rank}}} {
				p.Data = slices.Repeat([]float32{0.01}, p.Shape[0]*p.Shape[1])
				params = append(params, p)
			}
		}
	}
	files, err := adapter.Methods["lora"].Encode(c, "", nil, params)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMergeMemory: merging holds pieces of tensors and neither the model nor a copy of it: its peak is below the weights' bytes, and
// the same for twice the layers.
func TestMergeMemory(t *testing.T) {
	var peaks []int64
	for _, layers := range []int{10, 20} {
		dir := t.TempDir()
		s := shape{hidden: 512, inner: 1376, layers: layers, vocab: 512, heads: 8}
		size := sparseModel(t, filepath.Join(dir, "model"), s)
		sparseAdapter(t, filepath.Join(dir, "adapter"), s, 2)
		cmd := command(t, dir, "merge", "--model", "model", "--adapter", "adapter", "--out", "merged", "--shard-size", "50MB", "--check-text", "none")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
		t.Logf("%d layers: %d MB of weights, peak %d MB", layers, size>>20, peak>>20)
		if layers == 20 && peak > size*4/5 {
			t.Errorf("%d layers: the peak is %d bytes for weights of %d", layers, peak, size)
		}
		peaks = append(peaks, peak)
	}
	if grown := peaks[1] - peaks[0]; grown > 25<<20 {
		t.Errorf("10 more layers of 6.3 MB each take %d bytes more", grown)
	}
}
