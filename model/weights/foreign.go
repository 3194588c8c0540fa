package weights

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
)

// Advice for weights that are not SafeTensors. Such files are never opened in their format: unpickling runs code.
const (
	advicePickle = "a PyTorch pickle, which can run code when it is opened. Convert it with transformers where you " +
		"trust it:\n" +
		"  python -c 'from transformers import AutoModelForCausalLM as M; " +
		"M.from_pretrained(\"DIR\").save_pretrained(\"OUT\", safe_serialization=True)'\n" +
		"and copy the tokenizer's files to OUT"
	adviceGGUF = "a GGUF file, llama.cpp's format for inference. Train on the original model in SafeTensors, from " +
		"which it was made, " +
		"or dequantise it with transformers:\n" +
		"  python -c 'from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"DIR\", " +
		"gguf_file=\"FILE\").save_pretrained(\"OUT\", safe_serialization=True)'"
	adviceTensorFlow = "a TensorFlow or Keras file. Convert it with transformers 4 and TensorFlow:\n" +
		"  python -c 'from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"DIR\", " +
		"from_tf=True).save_pretrained(\"OUT\", safe_serialization=True)'"
	adviceFlax = "a Flax file. Convert it with transformers 4 and Flax:\n" +
		"  python -c 'from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"DIR\", " +
		"from_flax=True).save_pretrained(\"OUT\", safe_serialization=True)'"
	adviceONNX    = "an ONNX graph, an export for inference. Use the model in SafeTensors that it was exported from"
	adviceAdapter = "an adapter without its base model. Name the base model (base_model_name_or_path in " +
		"adapter_config.json)"
	adviceQuant = "which cannot be trained on. Use the original weights; adapter: qlora quantises them to 4 bits " +
		"while they load"
)

// foreign maps endings of file names to advice.
var foreign = []struct{ ending, advice string }{
	{".gguf", adviceGGUF}, {".ggml", adviceGGUF},
	{".bin", advicePickle}, {".pt", advicePickle}, {".pth", advicePickle}, {".ckpt", advicePickle},
	{".pkl", advicePickle},
	{".h5", adviceTensorFlow}, {".keras", adviceTensorFlow}, {".msgpack", adviceFlax}, {".onnx", adviceONNX},
}

// quantisedBy maps endings of tensor names to the quantisation method that uses them. Such weights cannot be read.
var quantisedBy = []struct{ ending, method string }{
	{".qweight", "GPTQ or AWQ"}, {".W_q", "HQQ"}, {".weight_packed", "compressed-tensors"}, {".weight_scale_inv",
		"FP8"}, {".weight_scale", "FP8 or compressed-tensors"},
}

// noWeights are files that a trainer writes beside a model.
var noWeights = []string{"training_args.bin", "optimizer.", "scheduler.", "rng_state", "scaler."}

// magics maps the first bytes of files to advice.
var magics = []struct{ begin, advice string }{
	{"GGUF", adviceGGUF}, {"PK\x03\x04", advicePickle}, {"\x80\x02", advicePickle}, {"\x80\x04", advicePickle},
	{"\x89HDF\r\n", adviceTensorFlow},
}

// Advice names the format of the first file with weights among names and explains how to convert it to SafeTensors; ""
// = there is none. It uses only the names.
func Advice(names []string) string {
	names = slices.Sorted(slices.Values(names))
	for _, f := range foreign {
		for _, name := range names {
			base := strings.ToLower(path.Base(filepath.ToSlash(name)))
			if !strings.HasSuffix(base, f.ending) || slices.ContainsFunc(noWeights, func(p string) bool {
				return strings.HasPrefix(base, p)
			}) {
				continue
			}
			advice := f.advice
			if strings.HasPrefix(base, "adapter_model.") {
				advice = adviceAdapter
			}
			return name + " is " + strings.Replace(advice, "FILE", path.Base(filepath.ToSlash(name)), 1)
		}
	}
	for _, name := range names {
		if path.Base(filepath.ToSlash(name)) == "adapter_model.safetensors" {
			return name + " is " + adviceAdapter
		}
	}
	return ""
}

// AdviceDir returns Advice for the files of a folder.
func AdviceDir(dir string) string {
	entries, _ := os.ReadDir(dir)
	return adviceEntries(entries, dir)
}

func adviceEntries(entries []fs.DirEntry, dir string) string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return strings.Replace(Advice(names), "DIR", dir, 1)
}

// AdviceFile returns the advice for one file by its name, or else by its first bytes.
func AdviceFile(name string) string {
	if advice := Advice([]string{name}); advice != "" {
		return strings.Replace(advice, "DIR", filepath.Dir(name), 1)
	}
	if advice := adviceBytes(head(name), name); advice != "" {
		return name + " is " + advice
	}
	return ""
}

// adviceBytes returns the advice for a file called name by its first bytes.
func adviceBytes(begin []byte, name string) string {
	if regular.Pointer(begin) {
		return regular.IsPointer
	}
	for _, m := range magics {
		if bytes.HasPrefix(begin, []byte(m.begin)) {
			return strings.NewReplacer("FILE", filepath.Base(name), "DIR", filepath.Dir(name)).Replace(m.advice)
		}
	}
	return ""
}

func head(name string) []byte {
	f, err := regular.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	begin := make([]byte, 32)
	n, _ := io.ReadFull(f, begin)
	return begin[:n]
}
