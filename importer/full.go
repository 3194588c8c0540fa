package importer

import (
	"fmt"
	"path"
	"strings"
)

// trainFull sets full fine-tuning, which has neither LoRA's keys nor a quantised base model. say says why.
func trainFull(t *translation, e entry, say string) {
	setAnew(t, "adapter", "full", e.shown)
	for i := len(t.set) - 1; i >= 0; i-- {
		if p := t.set[i].Path; strings.HasPrefix(p, "lora.") {
			t.dropUnread(p, "all weights are trained: there is no LoRA")
		}
	}
	t.add(Taken, e, "adapter", "full", say)
}

// trainAll translates a key that asks for training the base model's own weights.
func trainAll(t *translation, e entry) {
	if e.Value == "freeze" {
		freeze(t, e)
		return
	}
	trainFull(t, e, "")
}

// leftOut trains all weights for a file that names no adapter.
func leftOut(t *translation, key string) {
	trainFull(t, entry{Pair: Pair{Key: key, Value: "left out"}, shown: key}, "all weights are trained, as there")
}

// unfrozen translates Axolotl's regular expressions for the weights to train. With an adapter there they are trained
// besides.
func unfrozen(t *translation, e entry) {
	list, ok := e.Value.([]any)
	switch {
	case !isEmpty(t.given["adapter"].Value):
		t.missing(e, "the base weights stay frozen beside an adapter; lora.modules_to_save trains modules in whole")
		return
	case !ok:
		t.missing(e, "a list was expected; give full.train")
		return
	}
	var kept []any
	for _, one := range list {
		s, text := one.(string)
		if !text || strings.Contains(s, "[:") || strings.HasSuffix(s, "]") && strings.Contains(s, ":") {
			t.missing(entry{Pair: Pair{e.Key, one, e.Line}, shown: e.shown}, "a part of a weight: full.train names "+
				"whole weights")
			continue
		}
		kept = append(kept, s)
	}
	t.put(e, "full.train", kept, "parts of names between dots; there beginnings of names")
	t.entries[len(t.entries)-1].Class = Nothing
}

// freeze translates LLaMA-Factory's finetuning_type: freeze, which trains the last or the first layers. Their numbers
// come from the model's config.json.
func freeze(t *translation, e entry) {
	n, ok := fit(t.given["freeze_trainable_layers"].Value, Whole)
	if !ok {
		n = int64(2)
	}
	layers := layersOfModel(t)
	trained := min(max(n.(int64), -maxLayers), maxLayers)
	trainFull(t, e, "full.train names what is trained")
	if layers == 0 {
		t.missing(e, fmt.Sprintf("the number of the model's layers is not known here: name the %s in full.train, such "+
			"as [layers.30, layers.31]", ends(trained)))
		return
	}
	first, last := max(layers-trained, 0), layers
	if trained < 0 {
		first, last = 0, min(-trained, layers)
	}
	parts := moduleParts(t.given["freeze_trainable_modules"].Value)
	var names []any
	for i := first; i < last; i++ {
		for _, part := range parts {
			names = append(names, strings.TrimSuffix(fmt.Sprintf("layers.%d.%s", i, part), "."))
		}
	}
	for _, part := range moduleParts(t.given["freeze_extra_modules"].Value) {
		if part != "" {
			names = append(names, part)
		}
	}
	setAnew(t, "full.train", names, e.shown)
	t.add(Taken, e, "full.train", names, "")
}

// ofFreeze records the keys that freeze reads.
func ofFreeze(t *translation, e entry) {
	if t.given["finetuning_type"].Value == "freeze" {
		t.add(Taken, e, "full.train", nil, "")
		return
	}
	t.add(Taken, e, "", nil, "of finetuning_type: freeze")
}

// ends says which layers a number of LLaMA-Factory means.
func ends(n int64) string {
	if n < 0 {
		return fmt.Sprintf("first %d layers", -n)
	}
	return fmt.Sprintf("last %d layers", n)
}

// moduleParts returns the names of a list with commas; all is one empty name.
func moduleParts(v any) []string {
	var all []string
	switch v := v.(type) {
	case string:
		all = strings.Split(v, ",")
	case []any:
		for _, one := range v {
			all = append(all, Text(one))
		}
	}
	var parts []string
	for _, name := range all[:min(len(all), maxParts)] {
		if name = strings.TrimSpace(name); name != "" && name != "all" {
			parts = append(parts, name)
		}
	}
	if parts == nil {
		return []string{""}
	}
	return parts
}

// Limits of what is read: the layers of a model, and the names of modules in a list.
const (
	maxLayers = 10_000
	maxParts  = 100
)

// layersOfModel returns the number of layers of the base model if its folder is beside the file; 0 = not known.
func layersOfModel(t *translation) int64 {
	model, _ := t.given["model_name_or_path"].Value.(string)
	if t.ReadFile == nil || model == "" {
		return 0
	}
	text, err := t.ReadFile(path.Join(model, "config.json"))
	if err != nil {
		return 0
	}
	config, err := parseJSON(text)
	if err != nil {
		return 0
	}
	if n, ok := config.Get("num_hidden_layers").(int64); ok && n > 0 && n <= maxLayers {
		return n
	}
	return 0
}
