package weights

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestForeignFolders: a folder with weights in another format is told what they are and how to convert them.
func TestForeignFolders(t *testing.T) {
	for _, c := range []struct {
		files string
		want  []string
	}{
		{"config.json pytorch_model.bin", []string{"pytorch_model.bin is a PyTorch pickle, which can run code",
			"save_pretrained(\"OUT\", safe_serialization=True)", "from_pretrained(\"DIR\")"}},
		{"pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin pytorch_model.bin.index.json",
			[]string{"pytorch_model-00001-of-00002.bin is a PyTorch pickle"}},
		{"consolidated.00.pth params.json", []string{"consolidated.00.pth is a PyTorch pickle"}},
		{"model.pt", []string{"model.pt is a PyTorch pickle"}},
		{"smol-Q4_K_M.gguf", []string{"smol-Q4_K_M.gguf is a GGUF file, llama.cpp's format for inference",
			"gguf_file=\"smol-Q4_K_M.gguf\""}},
		{"SMOL.GGUF README.md", []string{"SMOL.GGUF is a GGUF file"}},
		{"tf_model.h5", []string{"tf_model.h5 is a TensorFlow or Keras file", "from_tf=True"}},
		{"flax_model.msgpack", []string{"flax_model.msgpack is a Flax file", "from_flax=True"}},
		{"model.onnx", []string{"model.onnx is an ONNX graph"}},
		{"adapter_model.safetensors adapter_config.json", []string{"adapter_model.safetensors is an adapter without " +
			"its base model"}},
		{"adapter_model.bin", []string{"adapter_model.bin is an adapter without its base model"}},
		{"optimizer.pt scheduler.pt rng_state.pth training_args.bin", []string{"has neither model.safetensors nor"}},
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(c.files) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("\x80\x02cposix\nsystem\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := OpenDir(dir)
		for _, want := range c.want {
			if want = strings.Replace(want, "DIR", dir, 1); !errors.Is(err, fs.ErrNotExist) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", c.files, err, want)
			}
		}
	}
}

// TestForeignInFS: an embedded model's folder is looked at, not one of the disk.
func TestForeignInFS(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("of-the-disk.gguf", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenFS(fstest.MapFS{"pytorch_model.bin": {}}, ".")
	if err == nil || !strings.Contains(err.Error(), "pytorch_model.bin is a PyTorch pickle") {
		t.Error(err)
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, content, want string }{
		{"m.gguf", "", "m.gguf is a GGUF file"},
		{"m", "GGUF\x03\x00\x00\x00", "is a GGUF file"},
		{"m", "PK\x03\x04", "is a PyTorch pickle"},
		{"m", "\x80\x02}q\x00", "is a PyTorch pickle"},
		{"m", "\x89HDF\r\n\x1a\n", "is a TensorFlow or Keras file"},
		{"m", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
			"is a Git LFS pointer, not the content: run `git lfs pull`"},
		{"m", "text", ""},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := AdviceFile(path); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%q: got %q, want %s", c.content, got, c.want)
		}
		if _, err := Open(path); c.content != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("Open %q: got %v, want %s", c.content, err, c.want)
		}
	}
	if got := AdviceFile(filepath.Join(dir, "absent")); got != "" {
		t.Errorf("an absent file: %s", got)
	}
}

// TestQuantisedElsewhere: tensors of methods whose weights are not read are named with the method.
func TestQuantisedElsewhere(t *testing.T) {
	for _, q := range quantisedBy {
		data, err := Encode([]Tensor{tensor(t, "up_proj"+q.ending, 1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(f, nil); err == nil || !strings.Contains(err.Error(), "up_proj"+q.ending+
			" belongs to weights that "+q.method+" has quantised, which") {
			t.Errorf("%s: %v", q.ending, err)
		}
	}
	data, err := Encode([]Tensor{
		tensor(t, "model.layers.0.self_attn.q_proj.qweight", 1), tensor(t, "model.layers.0.self_attn.q_proj.scales", 1),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	const want = "the weights do not fit the model: model.layers.0.self_attn.q_proj.qweight belongs to weights that " +
		"GPTQ or AWQ has quantised, " +
		"which cannot be trained on. Use the original weights; adapter: qlora quantises them to 4 bits while they load"
	err = Check(f, []Spec{{"model.layers.0.self_attn.q_proj.weight", []int{1}, false}})
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
