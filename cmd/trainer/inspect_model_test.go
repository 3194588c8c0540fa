package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInspectModel checks the facts of a model that are printed from its files and from config.json alone.
func TestInspectModel(t *testing.T) {
	dir := t.TempDir()
	code, out, errOut := trainer(t, dir, nil, "", "inspect", "model", "embedded:stories260K", "--no-tensors")
	if want := `model       embedded:stories260K
family      llama, 5 layers
width       64, MLP 172, vocabulary 512
attention   8 heads of 8, 4 key/value heads
context     at most 512 tokens
embeddings  tied: the head is the embedding
parameters  260032 in 47 tensors, 1015.8 KiB, stored as F32
all-linear  q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj
tokens      512; BOS "<s>" (1), put before each text; EOS "</s>" (2); PAD none
template    none
`; code != 0 || out != want {
		t.Errorf("exit code %d: %s\n got %s\nwant %s", code, errOut, out, want)
	}
	config :=
		`{"model_type":"qwen2","vocab_size":100,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":4,"num_attention_heads":4,
		"num_key_value_heads":2,"use_sliding_window":true,"sliding_window":16,"max_window_layers":1,"max_position_embeddings":64,"torch_dtype":"bfloat16"}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "model", ".", "--json")
	var m modelJSON
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, errOut)
	}
	want := 2*100*32 + 4*(2*32*32+2*16*32+32+2*16+3*32*48+2*32) + 32
	if m.Family != "qwen2" || m.Weights || m.Bytes != 0 || m.Parameters != int64(want) || m.Tokenizer != nil ||
		m.Storage["BF16"] != len(m.Tensors) {
		t.Errorf("got %+v, want %d parameters", m, want)
	}
	if len(m.Windows) != 2 || m.Windows[0] != (windowJSON{0, 1}) || m.Windows[1] != (windowJSON{16, 3}) {
		t.Errorf("windows %v", m.Windows)
	}
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "model", ".", "--no-tensors")
	for _, line := range []string{"window      16 tokens in 3 of 4 layers\n",
		"; the folder holds no weights: they follow from config.json\n",
		"tokens      the folder holds no tokenizer\n"} {
		if code != 0 || !strings.Contains(out, line) {
			t.Errorf("exit code %d, %s: %q is not in\n%s", code, errOut, line, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.model"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ = trainer(t, dir, nil, "", "inspect", "model", "."); code != 0 ||
		!strings.Contains(out, "of a tokenizer only tokenizer.model is there, in SentencePiece's form") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestInspectExperts: a mixture of experts has fewer parameters for a token than in all, from config.json alone too.
func TestInspectExperts(t *testing.T) {
	dir := t.TempDir()
	config :=
		`{"model_type":"qwen3_moe","vocab_size":100,"hidden_size":32,"intermediate_size":48,"moe_intermediate_size":16,"num_experts":8,"num_experts_per_tok":2,
		"num_hidden_layers":3,"mlp_only_layers":[1],"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"max_position_embeddings":64}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := trainer(t, dir, nil, "", "inspect", "model", ".", "--json", "--no-tensors")
	var m modelJSON
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, errOut)
	}
	expert, table := int64(3*32*16), int64(100*32)
	shared := 2*table + 3*(2*32*32+2*16*32+2*32+2*8) + 32 + 3*32*48 + 2*8*32
	if m.Parameters != shared+2*8*expert || m.Active != shared+2*2*expert || m.ActiveLess != m.Active-table {
		t.Errorf("%d parameters, %d active, %d without embeddings; want shared %d and experts of %d", m.Parameters,
			m.Active, m.ActiveLess, shared, expert)
	}
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "model", ".", "--no-tensors")
	if line := fmt.Sprintf(
		"active      %d for a token, which goes through 2 of 8 experts; %d without the table of embeddings\n", m.Active,
		m.ActiveLess); code != 0 || !strings.Contains(out, line) {
		t.Errorf("exit code %d, %s: %q is not in\n%s", code, errOut, line, out)
	}
}
