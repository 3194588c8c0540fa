package tests

import (
	le "encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

var update = flag.Bool("update", false, "write testdata/broken.txt anew from what the program says")

const brokenConfig = `base_model: ./model
adapter: lora
lora:
  r: 2
  alpha: 4
  target_modules: [q_proj, v_proj]
dataset:
  path: data.jsonl
  format: completion
  max_length: 64
training:
  max_steps: 4
  batch_size: 2
  resume: auto
output_dir: out
device: cpu
`

const brokenData = `{"prompt": "Once upon a time", "completion": " there was a cat."}
{"prompt": "The dog", "completion": " ran home."}
{"prompt": "A bird", "completion": " sang all day."}
`

// workplace is a folder with a model, data, a configuration and an earlier run's output.
type workplace struct {
	t   testing.TB
	dir string
}

func newWorkplace(t testing.TB) workplace {
	t.Helper()
	w := workplace{t, t.TempDir()}
	model := filepath.Join(golden.Root(t), "configs", "assets", "stories260K")
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		w.write("model/"+name, read(t, model, name))
	}
	w.write("config.yaml", brokenConfig)
	w.write("data.jsonl", brokenData)
	return w
}

func (w workplace) write(name, text string) {
	w.t.Helper()
	write(w.t, filepath.Join(w.dir, name), text)
}
func (w workplace) read(name string) string { w.t.Helper(); return read(w.t, w.dir, name) }

func (w workplace) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// change replaces text that must be there.
func (w workplace) change(name, old, new string) {
	w.t.Helper()
	text := w.read(name)
	if !strings.Contains(text, old) {
		w.t.Fatalf("%s does not hold %q", name, old)
	}
	w.write(name, strings.Replace(text, old, new, 1))
}

func (w workplace) cut(name string, bytes int) {
	w.t.Helper()
	text := w.read(name)
	w.write(name, text[:len(text)-bytes])
}

// png returns a picture.
func (w workplace) png() string { return read(w.t, golden.Path(w.t, "images"), "rgb.png") }

// sized returns a picture whose header says another size.
func (w workplace) sized(width, height uint32) string {
	file := []byte(w.png())
	le.BigEndian.PutUint32(file[16:], width)
	le.BigEndian.PutUint32(file[20:], height)
	le.BigEndian.PutUint32(file[29:], crc32.ChecksumIEEE(file[12:29]))
	return string(file)
}

// pictured makes the model one of images, and the data a row with a text and a column of images.
func (w workplace) pictured(text, column string) {
	w.t.Helper()
	if err := os.Rename(filepath.Join(w.dir, "model"), filepath.Join(w.dir, "text")); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(golden.Idefics3(w.t), filepath.Join(w.dir, "model")); err != nil {
		w.t.Fatal(err)
	}
	w.write("text/chat_template.jinja", read(w.t, filepath.Join(w.dir, "model"), "chat_template.jinja"))
	w.change("config.yaml", "format: completion", "format: messages\n  cache_dir: \"\"")
	w.write("a.png", w.png())
	w.write("data.jsonl", fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}, {"role": "assistant", `+
		`"content": "yes"}], "images": %s}`+"\n", text, column))
}

// picture makes the row's picture these bytes.
func (w workplace) picture(file string) {
	w.t.Helper()
	w.pictured("<image>", `"a.png"`)
	w.write("a.png", file)
}

// copyRun copies an output folder.
func (w workplace) copyRun(from string) {
	w.t.Helper()
	if err := os.CopyFS(filepath.Join(w.dir, "out"), os.DirFS(from)); err != nil {
		w.t.Fatal(err)
	}
}

// header gives a SafeTensors file another header of the same length or shorter.
func (w workplace) header(name string, f func(header string) string) {
	w.t.Helper()
	raw := w.read(name)
	n := le.LittleEndian.Uint64([]byte(raw[:8]))
	h := f(raw[8 : 8+n])
	size := make([]byte, 8)
	le.LittleEndian.PutUint64(size, uint64(len(h)))
	w.write(name, string(size)+h+raw[8+n:])
}

func replace(old, new string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, new, 1) }
}

var train = []string{"train", "--config", "config.yaml", "--quiet"}

func with(args ...string) []string { return append(train[:len(train):len(train)], args...) }

func set(kv string) []string { return with("--set", kv) }

// broken lists inputs that are wrong in one way each. The words and the exit code that each must give are
// in testdata/broken.txt.
var broken = []struct {
	name  string
	args  []string
	spoil func(w workplace)
}{
	// the command line
	{"no such command", []string{"trian"}, nil},
	{"no such flag", with("--worker", "2"), nil},
	{"no configuration", []string{"train"}, nil},
	{"a word too many", with("more"), nil},
	{"--set without a value", set("training.max_steps"), nil},
	{"--set of an unknown key", set("training.max_step=3"), nil},
	{"--set of text for a number", set("training.max_steps=many"), nil},
	{"generate without a prompt", []string{"generate", "--model", "model"}, nil},
	{"more tokens than positions", []string{"generate", "--model", "model", "--prompt", "Once", "--max-tokens", "9999"}, nil},

	// configurations
	{"no such configuration", []string{"train", "--config", "nothing.yaml"}, nil},
	{"an empty configuration", train, func(w workplace) { w.write("config.yaml", "") }},
	{"a configuration that is no YAML", train, func(w workplace) { w.change("config.yaml", "lora:\n", "lora:\n\t") }},
	{"a key given twice", train, func(w workplace) { w.change("config.yaml", "device: cpu", "device: cpu\ndevice: cpu") }},
	{"text for a number", train, func(w workplace) { w.change("config.yaml", "r: 2", "r: two") }},
	{"three bad values", train, func(w workplace) {
		w.change("config.yaml", "r: 2", "r: 0")
		w.change("config.yaml", "max_steps: 4", "max_steps: -4")
		w.change("config.yaml", "  max_length: 64", "  max_length: 0")
	}},
	{"an unknown adapter", set("adapter=bitfit"), nil},
	{"an unknown storage", with("--set", "adapter=qlora", "--set", "quantization.type=nf3"), nil},
	{"an unknown schedule", set("training.lr_scheduler=cosin"), nil},
	{"an unknown format", set("dataset.format=alpca"), nil},
	{"an unknown device", set("device=gpu"), nil},
	{"a target that is not there", set("lora.target_modules=[q_proj,qkv_proj]"), nil},
	{"targets that match nothing", set("lora.target_modules=.*\\.dense"), nil},
	{"a pattern that is no expression", set("lora.target_modules=(q_proj"), nil},
	{"a length above the model's", set("dataset.max_length=1024"), func(w workplace) {
		w.change("data.jsonl", "ran home.", strings.Repeat("ran home. ", 200))
	}},
	{"a device that is not there", set("device=cuda"), nil},

	// images
	{"a truncated picture", train, func(w workplace) { w.picture(w.png()[:200]) }},
	{"a picture without pixels", train, func(w workplace) { w.picture(w.sized(0, 26)) }},
	{"a picture of another kind", train, func(w workplace) { w.picture("BM" + w.png()) }},
	{"an empty picture", train, func(w workplace) { w.picture("") }},
	{"a picture of 100,000 x 100,000", train, func(w workplace) { w.picture(w.sized(100000, 100000)) }},
	{"fewer pictures than marks", train, func(w workplace) { w.pictured("<image><image>", `["a.png"]`) }},
	{"more pictures than marks", train, func(w workplace) { w.pictured("<image>", `["a.png", "a.png"]`) }},
	{"a picture that is not there", train, func(w workplace) { w.pictured("<image>", `"b.png"`) }},
	{"a picture outside", train, func(w workplace) { w.pictured("<image>", `"../a.png"`) }},
	{"a picture of an absolute path", train, func(w workplace) { w.pictured("<image>", `"/etc/hostname"`) }},
	{"a picture of a URL", train, func(w workplace) { w.pictured("<image>", `"https://example.org/a.png"`) }},
	{"a data: URI without base64", train, func(w workplace) { w.pictured("<image>", `"data:image/png,abc"`) }},
	{"a column of another form", train, func(w workplace) { w.pictured("<image>", `[{"file": "a.png"}]`) }},
	{"a column of numbers", train, func(w workplace) { w.pictured("<image>", `[7]`) }},
	{"pictures for a model of text", set("base_model=./text"), func(w workplace) { w.pictured("<image>", `"a.png"`) }},
	{"a part with a picture for a model of text", set("base_model=./text"), func(w workplace) {
		w.pictured("x", `null`)
		w.change("data.jsonl", `"content": "x"`, `"content": [{"type": "image", "image": "a.png"}]`)
	}},
	{"targets of the image tower", set("lora.target_modules=[q_proj,fc1]"), func(w workplace) {
		w.pictured("<image>", `"a.png"`)
	}},
	{"a pattern of the projector", set("lora.target_modules=.*connector.*"), func(w workplace) {
		w.pictured("<image>", `"a.png"`)
	}},
	{"an image tower without weights", train, func(w workplace) {
		w.pictured("<image>", `"a.png"`)
		w.header("model/model.safetensors", replace("post_layernorm", "pre_layernorm_"))
	}},

	// model folders
	{"no such model", set("base_model=./nothing"), nil},
	{"no config.json", train, func(w workplace) { w.remove("model/config.json") }},
	{"half a config.json", train, func(w workplace) { w.cut("model/config.json", 100) }},
	{"an unknown architecture", train, func(w workplace) {
		w.change("model/config.json", `"model_type": "llama"`, `"model_type": "gpt2"`)
	}},
	{"an activation that is not known", train, func(w workplace) { w.change("model/config.json", `"silu"`, `"quick_gelu"`) }},
	{"an unknown key in config.json", train, func(w workplace) {
		w.change("model/config.json", `"head_dim": 8`, `"head_dim": 8, "clip_qkv": 8`)
	}},
	{"sizes that are not the weights'", train, func(w workplace) {
		w.change("model/config.json", `"num_hidden_layers": 5`, `"num_hidden_layers": 4`)
		w.change("model/config.json", `"intermediate_size": 172`, `"intermediate_size": 176`)
	}},
	{"no weights", train, func(w workplace) { w.remove("model/model.safetensors") }},
	{"truncated weights", train, func(w workplace) { w.cut("model/model.safetensors", 1000) }},
	{"weights of eight bytes", train, func(w workplace) { w.write("model/model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f") }},
	{"a weight of another name", train, func(w workplace) {
		w.header("model/model.safetensors", replace("model.norm.weight", "model.nrom.weight"))
	}},
	{"a header that is no JSON", train, func(w workplace) { w.header("model/model.safetensors", replace("{", "[")) }},
	{"weights of PyTorch", train, func(w workplace) {
		w.remove("model/model.safetensors")
		w.write("model/pytorch_model.bin", "\x80\x02}q\x00.")
	}},
	{"a GGUF file as the model", set("base_model=m.gguf"), func(w workplace) { w.write("m.gguf", "GGUF\x03\x00\x00\x00") }},

	// tokenizers
	{"no tokenizer", train, func(w workplace) { w.remove("model/tokenizer.json") }},
	{"half a tokenizer", train, func(w workplace) { w.cut("model/tokenizer.json", 4000) }},
	{"a tokenizer of another kind", train, func(w workplace) {
		w.change("model/tokenizer.json", `"BPE"`, `"Magic"`)
	}},
	{"a tokenizer of another model", train, func(w workplace) { // ids above the vocabulary
		w.change("model/config.json", `"vocab_size": 512`, `"vocab_size": 100`)
	}},

	// data
	{"no such data", set("dataset.path=nothing.jsonl"), nil},
	{"a folder as data", set("dataset.path=model"), nil},
	{"empty data", train, func(w workplace) { w.write("data.jsonl", "") }},
	{"a line that is no JSON", train, func(w workplace) { w.change("data.jsonl", `{"prompt": "The`, `{prompt: "The`) }},
	{"a row without its field", train, func(w workplace) { w.change("data.jsonl", `"completion": " ran`, `"response": " ran`) }},
	{"a number for a text", train, func(w workplace) { w.change("data.jsonl", `"The dog"`, `7`) }},
	{"bytes that are no UTF-8", train, func(w workplace) { w.change("data.jsonl", "The dog", "The \xff\xfe") }},
	{"answers that do not fit", set("dataset.max_length=4"), nil},
	{"data of another kind", train, func(w workplace) {
		w.write("data.csv", "a,b\n1,2\n")
		w.change("config.yaml", "data.jsonl", "data.csv")
	}},

	// adapters
	{"no such adapter", []string{"eval", "--config", "config.yaml", "--adapter", "nothing"}, nil},
	{"an adapter with DoRA", []string{"eval", "--config", "config.yaml", "--adapter", "out/checkpoint-2"}, func(w workplace) {
		w.change("out/checkpoint-2/adapter_config.json", `"use_dora": false`, `"use_dora": true`)
	}},
	{"an adapter of another rank", []string{"generate", "--model", "model", "--prompt", "Once", "--adapter", "out/checkpoint-2"}, func(w workplace) {
		w.change("out/checkpoint-2/adapter_config.json", `"r": 2`, `"r": 4`)
		w.change("out/checkpoint-2/adapter_config.json", `"v_proj"`, `"v_proj", "o_proj"`)
	}},
	{"half an adapter", []string{"generate", "--model", "model", "--prompt", "Once", "--adapter", "out/checkpoint-2"}, func(w workplace) {
		w.cut("out/checkpoint-2/adapter_model.safetensors", 100)
	}},
	{"an adapter to start from that is not there", with("--set", "lora.init_from=nothing", "--set", "training.resume=", "--set", "output_dir=other"), nil},
	{"an adapter to start from of another scale", with("--set", "lora.init_from=out/checkpoint-2", "--set", "lora.alpha=8", "--set", "training.resume=", "--set", "output_dir=other"), nil},

	{"a model merged into its adapter's folder", []string{"merge", "--model", "model", "--adapter", "out/checkpoint-2", "--out", "out/checkpoint-2"}, nil},
	{"a model merged into its own folder", []string{"merge", "--model", "model", "--adapter", "out/checkpoint-2", "--out", "model"}, nil},

	// checkpoints and earlier runs
	{"a run that is there already", set("training.resume="), nil},
	{"no such checkpoint", with("--resume", "out/checkpoint-7"), nil},
	{"a checkpoint with a changed byte", with("--resume", "out/checkpoint-2"), func(w workplace) {
		w.change("out/checkpoint-2/trainer_state.json", `"global_step": 2`, `"global_step": 3`)
	}},
	{"a checkpoint without its optimizer", with("--resume", "out/checkpoint-2"), func(w workplace) { w.remove("out/checkpoint-2/optimizer.safetensors") }},
	{"the only checkpoint is damaged", train, func(w workplace) { w.cut("out/checkpoint-2/optimizer.safetensors", 10) }},
	{"a checkpoint of another rank", set("lora.r=4"), nil},
	{"a checkpoint of another scale", set("lora.alpha=8"), nil},
	{"a checkpoint of other data", train, func(w workplace) { w.change("data.jsonl", "The dog", "The cat") }},
	{"a checkpoint beyond the last step", set("training.max_steps=1"), nil},
	{"a checkpoint of a run elsewhere", with("--resume", "away/checkpoint-2"), func(w workplace) {
		if err := os.CopyFS(filepath.Join(w.dir, "away"), os.DirFS(filepath.Join(w.dir, "out"))); err != nil {
			w.t.Fatal(err)
		}
	}},
	{"an output folder that is a file", with("--set", "output_dir=data.jsonl", "--set", "training.resume="), nil},
}

// hashes hold what differs from run to run: the seconds that a step took.
var hashes = regexp.MustCompile("[0-9a-f]{64}")

// TestBrokenInputs: every broken input gives the words and the exit code that testdata/broken.txt has for it,
// and changes nothing in the output folder of an earlier run.
func TestBrokenInputs(t *testing.T) {
	if len(broken) < 40 {
		t.Errorf("%d broken inputs", len(broken))
	}
	first := newWorkplace(t)
	mustRun(t, first.dir, with("--set", "training.max_steps=2")...)
	// a run that was stopped after two steps: no adapter at the end
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors", "run_manifest.json", "tokenizer.json"} {
		first.remove("out/" + name)
	}
	said := make([]string, len(broken))
	t.Run("all", func(t *testing.T) {
		for i, c := range broken {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				w := newWorkplace(t)
				w.copyRun(filepath.Join(first.dir, "out"))
				if c.spoil != nil {
					c.spoil(w)
				}
				before := withoutJournal(t, w.dir)
				o := run(t, w.dir, c.args...)
				if withoutJournal(t, w.dir) != before {
					t.Errorf("files were changed:\n%s\nbefore:\n%s", withoutJournal(t, w.dir), before)
				}
				words := o.stderr
				if at := strings.Index("\n"+words, "\ntrainer: "); at >= 0 {
					words = words[at:]
				}
				said[i] = fmt.Sprintf("== %s: exit code %d\n%s\n", c.name, o.code, hashes.ReplaceAllString(words, "HASH"))
			})
		}
	})
	path := filepath.Join("testdata", "broken.txt")
	if *update {
		write(t, path, strings.Join(said, ""))
		return
	}
	want := map[string]string{}
	for _, part := range strings.Split(read(t, path), "== ")[1:] {
		name, _, _ := strings.Cut(part, ": exit code ")
		want[name] = "== " + part
	}
	for i, c := range broken {
		if said[i] != want[c.name] {
			t.Errorf("got\n%swant\n%s", said[i], want[c.name])
		}
		delete(want, c.name)
	}
	for name := range want {
		t.Errorf("%s has no case of the name %q", path, name)
	}
}
