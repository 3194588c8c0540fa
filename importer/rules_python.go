package importer

import (
	"fmt"
	"strings"
)

// python holds the rules for arguments of calls in notebooks and scripts.
var python = map[string]rule{
	"model_name":                    func(t *translation, e entry) { t.take(e, "base_model") },
	"pretrained_model_name_or_path": func(t *translation, e entry) { t.take(e, "base_model") },
	"max_seq_length":                func(t *translation, e entry) { t.take(e, "dataset.max_length") },
	"max_length":                    pythonLength,
	"r":                             func(t *translation, e entry) { t.take(e, "lora.r") },
	"random_state": func(t *translation, e entry) {
		t.put(e, "seed", e.Value, "one seed holds for weights, order and split")
	},
	"seed":                   func(t *translation, e entry) { t.take(e, "seed") },
	"packing":                func(t *translation, e entry) { t.take(e, "dataset.packing") },
	"path":                   pythonData,
	"name":                   inSource,
	"split":                  inSource,
	"revision":               inSource,
	"data_files":             inSource,
	"dtype":                  pythonType,
	"torch_dtype":            pythonType,
	"quantization_config":    passed("its own arguments are read"),
	"bnb_4bit_compute_dtype": pythonType,
	"model":                  pythonModel,
	"args":                   passed("its own arguments are read"),
	"train_dataset":          passed("load_dataset's arguments are read"),
	"eval_dataset":           pythonHeldOut,
	"test_size":              valSize,
	"assistant_only_loss":    wholeConversations,
	"tokenizer":              passed("an object of the program"),
	"processing_class":       passed("an object of the program"),
	"peft_config":            passed("its own arguments are read"),
	"data_collator":          passed("rows lie end to end, none is padded; what is trained, dataset.train_on says"),
	"formatting_func": func(t *translation, e entry) {
		t.missing(e, "no code is run: rows in dataset.format completion, alpaca, messages or text need none")
	},
	"dataset_text_field": textField,
	"load_in_16bit":      func(t *translation, e entry) { t.ifTrue(e, "adapter", "lora", "") },
	"full_finetuning": func(t *translation, e entry) {
		if e.Value == true {
			t.all = &e
			return
		}
		t.ifTrue(e, "adapter", "full", "")
	},
	"chat_template":              pythonTemplate,
	"instruction_part":           onResponses,
	"response_part":              onResponses,
	"num_proc":                   passed("all cores read and tokenise"),
	"dataset_num_proc":           passed("all cores read and tokenise"),
	"token":                      passed("HF_TOKEN is read from the environment"),
	"max_lora_rank":              passed("of another program's generation"),
	"temporary_location":         passed("nothing is kept on disk while training"),
	"logging_dir":                passed("metrics.jsonl is written into output_dir"),
	"mapping":                    passed("keys of messages: dataset.format sharegpt or messages says them"),
	"finetune_language_layers":   layersOf("language"),
	"finetune_attention_modules": layersOf("attention"),
	"finetune_mlp_modules":       layersOf("mlp"),
	"finetune_vision_layers": func(t *translation, e entry) {
		t.ifOn(e, "of a model that reads images the language model alone is trained")
	},
}

// layersOfModel reads Unsloth's switches of layers. If all are on, all linear layers are trained.
func layersOf(which string) rule {
	return func(t *translation, e entry) {
		if e.Value == true {
			t.add(Taken, e, "", nil, "lora.target_modules names them")
			return
		}
		t.missing(e, "name the modules without those of "+which+" in lora.target_modules")
	}
}

func passed(say string) rule {
	return func(t *translation, e entry) {
		t.add(Taken, entry{Pair: Pair{e.Key, e.Value, e.Line}, shown: e.shown}, "", nil, say)
	}
}

// pythonLength reads Unsloth's sequence length, which from_pretrained sets.
func pythonLength(t *translation, e entry) {
	if t.has("dataset.max_length") && e.peers == "" {
		t.put(e, "dataset.max_length", e.Value, "")
		return
	}
	t.take(e, "dataset.max_length")
}

// pythonData begins a source of rows.
func pythonData(t *translation, e entry) {
	s, ok := e.Value.(string)
	if !ok {
		t.missing(e, "an expression, which is not worked out: give dataset.path")
		return
	}
	t.add(Taken, e, "dataset.path", s, "")
	t.data = append(t.data, Map{{Key: "path", Value: s}})
}

// inSource reads an argument of load_dataset that belongs to the preceding path.
func inSource(t *translation, e entry) {
	s, text := e.Value.(string)
	if e.Key == "data_files" && !text && t.filesOf(e) {
		return
	}
	if !strings.HasPrefix(e.shown, "load_dataset") || len(t.data) == 0 || !text {
		t.missing(e, "not translated; dataset.sources has path, name, revision and split")
		return
	}
	last := &t.data[len(t.data)-1]
	switch {
	case e.Key == "data_files" && len(*last) > 0 && t.isLoader((*last)[0].Value.(string)):
		(*last)[0].Value = s
		t.add(Taken, e, "dataset.path", s, "")
	case e.Key == "data_files":
		t.missing(e, "name the file in dataset.path")
	case e.Key == "split" && s == "train":
		t.add(Taken, e, "", nil, "the default")
	default:
		*last = append(*last, Pair{Key: e.Key, Value: s})
		t.add(Taken, e, "dataset.sources[]."+e.Key, s, "")
	}
}

func pythonType(t *translation, e entry) {
	name := Text(e.Value)
	name = name[strings.LastIndexByte(name, '.')+1:]
	ours, ok := map[string]string{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[name]
	if !ok {
		ours = "auto"
	}
	if strings.HasPrefix(e.Key, "bnb_") && t.has("training.precision") {
		t.add(Taken, e, "", nil, "training.precision is given besides")
		return
	}
	t.put(e, "training.precision", ours, "")
}

// textField translates the field that the format text reads. A program that makes the rows itself has written that
// field.
func textField(t *translation, e entry) {
	s, ok := e.Value.(string)
	switch {
	case !ok:
		t.missing(e, "give dataset.fields, such as {text: body}")
		return
	case s == "":
		t.off(e)
		return
	case t.in.made:
		t.add(Taken, e, "", nil, "code of the file writes this field: see its call")
		return
	}
	if len(t.data) == 1 {
		t.data[0] = append(t.data[0], Pair{Key: "format", Value: "text"})
		if s != "text" {
			t.data[0] = append(t.data[0], Pair{Key: "fields", Value: Map{{Key: "text", Value: s}}})
		}
	} else {
		t.at["dataset.format"] = len(t.set)
		t.set = append(t.set, Setting{"dataset.format", "text", e.shown})
	}
	t.add(Different, e, "dataset.format", "text", "the field is trained whole, as there; rows as formats messages, "+
		"alpaca or completion train the answers alone")
	t.entries[len(t.entries)-1].Class = Nothing
}

func pythonTemplate(t *translation, e entry) { template(t, e) }

func onResponses(t *translation, e entry) {
	t.put(e, "dataset.train_on", "assistant", "the template says where answers are; rows must be conversations "+
		"(dataset.format: messages)")
}

// peft holds the rules of an adapter_config.json.
var peft = map[string]rule{
	"peft_type": func(t *translation, e entry) {
		switch s, _ := e.Value.(string); {
		case s == "BONE":
			t.put(e, "adapter", "lora", "Bone's successor in PEFT is MiSS, whose update is another: "+
				"Bone's files can't be continued")
			t.as(len(t.entries)-1, Changes)
		case s == "LORA" || t.peft != nil:
			t.put(e, "adapter", "lora", "")
		default:
			t.put(e, "adapter", "lora", "no such method here: docs/ADAPTERS.md lists those that there are")
			t.as(len(t.entries)-1, Changes)
		}
	},
	"lora_bias":               biasKeys,
	"trainable_token_indices": tokenIndices,
	"r":                       func(t *translation, e entry) { t.take(e, "lora.r") },
	"bias":                    biasKeys,
	"revision":                func(t *translation, e entry) { t.missing(e, t.keys["revision"].Say) },
	"task_type": func(t *translation, e entry) {
		if e.Value == "CAUSAL_LM" {
			t.add(Taken, e, "", nil, "what a run trains")
			return
		}
		t.missing(e, t.keys["task_type"].Say)
	},
	"inference_mode":    passed("train it further with init_from in the method's section"),
	"peft_version":      passed("which version wrote the file"),
	"auto_mapping":      passed("of another program's loading"),
	"init_lora_weights": loraStart,
	"megatron_core":     passed("of another program"),
	"qalora_group_size": passed("of use_qalora, which is off unless it is named"),
}

// loraStart translates PEFT's init_lora_weights: true, or an initialisation that exists here too.
func loraStart(t *translation, e entry) {
	name, _ := e.Value.(string)
	switch {
	case e.Value == true:
		t.add(Taken, e, "", nil, "A at random and B at zero")
	case name == "eva":
		say := "each layer keeps its rank, as with rho 1"
		if config, _ := t.given["eva_config"].Value.(Map); config.Get("rho") == 1.0 || config.Get("rho") == int64(1) {
			say = ""
		}
		t.put(e, "lora.init_lora_weights", name, say)
	case name == "loftq":
		t.put(e, "lora.init_lora_weights", loftQStart(t), "")
	case name == "olora" || name == "gaussian" || strings.HasPrefix(name, "pissa"):
		t.take(e, "lora.init_lora_weights")
	default:
		t.missing(e, t.keys["init_lora_weights"].Say)
	}
}

// loftQStart returns our name for LoftQ with the iterations of the file's loftq_config, which are 1 by default.
func loftQStart(t *translation) string {
	config, _ := t.given["loftq_config"].Value.(Map)
	if n, ok := fit(config.Get("loftq_iter"), Whole); ok && n.(int64) > 1 {
		return fmt.Sprintf("loftq_iter_%d", n)
	}
	return "loftq"
}

// loftQConfig reads the values of LoftQ, which count only where init_lora_weights names it.
func loftQConfig(t *translation, e entry) {
	if _, known := e.Value.(Map); known && t.given["init_lora_weights"].Value == "loftq" {
		t.add(Taken, e, "", nil, "of init_lora_weights; quantization has the bits")
		return
	}
	t.missing(e, t.keys["init_lora_weights"].Say)
}

// evaConfig reads the values of EVA, which count only where init_lora_weights names it.
func evaConfig(t *translation, e entry) {
	config, known := e.Value.(Map)
	tau, whiten, masked := config.Get("tau"), config.Get("whiten"), config.Get("use_label_mask")
	if known && t.given["init_lora_weights"].Value == "eva" && (tau == nil || tau == 0.99) && whiten != true &&
		masked != false {
		t.add(Taken, e, "", nil, "of init_lora_weights")
		return
	}
	t.missing(e, "a component of eva has settled at a cosine of 0.99 over the inputs at trained tokens, and none is "+
		"whitened")
}

// pissaStart reads LLaMA-Factory's switch of PiSSA, whose approximation makes pissa_iter steps; -1 = it is exact.
func pissaStart(t *translation, e entry) {
	n, ok := fit(t.given["pissa_iter"].Value, Whole)
	if !ok {
		n = int64(16)
	}
	name := "pissa"
	if n.(int64) >= 0 {
		name = fmt.Sprintf("pissa_niter_%d", n)
	}
	t.ifTrue(e, "lora.init_lora_weights", name, "")
}

func (t *translation) ifOn(e entry, say string) {
	if isOff(e.Value) {
		t.off(e)
		return
	}
	t.missing(e, say)
}
