package importer

import (
	"maps"
	"slices"
	"strings"
)

// imageModel is the call that loads a model of images and texts, whatever its class.
const imageModel = "AutoModelForImageTextToText.from_pretrained"

// otherWeights trains all weights for a file without an adapter, as the other program does, and reports for an image
// model what is trained of it here.
func (t *translation) otherWeights() {
	in := t.in
	if t.all != nil {
		trainAll(t, *t.all)
	}
	say := func(key, why string) {
		t.entries = append(t.entries, Entry{Group: Missing, Class: Changes, Key: key, Value: "left out", Say: why})
	}
	trains := in.trainsRows() || in.callsAny(slices.Collect(maps.Keys(preferenceTrainers)))
	_, config := t.given["peft_config"]
	switch adapter := in.usesAdapter(); {
	case in.Program.Name == "axolotl" && isEmpty(t.given["adapter"].Value) && isEmpty(t.given["lora_model_dir"].Value):
		leftOut(t, "adapter")
	case trains && !adapter && config:
		say("LoraConfig", "the adapter's values are made by code, and none is run: give lora.r, lora.alpha, "+
			"lora.dropout and lora.target_modules")
	case trains && !adapter:
		leftOut(t, "LoraConfig")
	}
	if in.calls[imageModel] {
		t.entries = append(t.entries, Entry{Group: Missing, Class: Changes, Key: imageModel,
			Say: "of a model that reads images the language model alone is trained, and rows are text"})
	}
}

// uncut reports for an unlimited length that rows are truncated here.
func (t *translation) uncut() {
	given, named := t.given["max_length"]
	if !t.in.Program.python || !named || given.Value != nil {
		return
	}
	for i := range t.entries {
		if e := &t.entries[i]; e.Key == given.shown && e.To == "" {
			e.Group, e.Class = Missing, Changes
			e.Say = "no row is cut there: give dataset.max_length the tokens of the longest row (trainer inspect " +
				"data names them)"
		}
	}
}

// axolotlPlugins reads plugins; those that make kernels faster change no intended number.
func axolotlPlugins(t *translation, e entry) {
	list, _ := e.Value.([]any)
	for _, one := range list {
		s, _ := one.(string)
		if !strings.HasSuffix(s, ".LigerPlugin") && !strings.HasSuffix(s, ".CutCrossEntropyPlugin") {
			t.missing(e, t.keys["plugins"].Say)
			return
		}
	}
	t.add(Taken, e, "", nil, "the fused kernels that fit the device are always used")
}

// axolotlClass reads a model class: one that loads every causal language model has no effect, another one may mean
// another model.
func axolotlClass(usual string) rule {
	return func(t *translation, e entry) {
		if s, _ := e.Value.(string); strings.HasSuffix(s, usual) {
			t.add(Taken, e, "", nil, "the model's folder says it")
			return
		}
		t.missing(e, t.keys[e.Key].Say)
	}
}
