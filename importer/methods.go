package importer

import (
	"strings"
)

// peftMethod is an adapter method beside LoRA, by the configuration classes of PEFT that stand for it.
type peftMethod struct {
	adapter string // value of our key adapter
	// section is our section with the method's keys; "lora" = the method reads LoRA's.
	section string
	types   []string // values of peft_type
	classes []string // PEFT's classes in Python
	// keys maps names of keys in the section lora, by which rules know them, to the method's own. The method has no
	// others.
	keys  map[string]string
	rules map[string]rule // rules of the method's own keys
}

// methods lists the adapter methods beside LoRA.
var methods = []peftMethod{
	{adapter: "dora", section: "lora"},
	{adapter: "ia3", section: "ia3", types: []string{"IA3"}, classes: []string{"IA3Config"},
		keys:  map[string]string{"target_modules": "target_modules", "init_from": "init_from"},
		rules: map[string]rule{"feedforward_modules": ia3Modules, "init_ia3_weights": startAsHere}},
	{adapter: "miss", section: "miss", types: []string{"MISS", "BONE"}, classes: []string{"MissConfig", "BoneConfig"},
		keys: map[string]string{"r": "r", "target_modules": "target_modules", "init_from": "init_from"},
		rules: map[string]rule{"init_weights": startAsHere, "mini_r": passed("of init_weights mini, which is another " +
			"update"), "miss_dropout": func(t *translation, e entry) { t.ifOn(e, "adapter: miss has no dropout") }}},
	{adapter: "vera", section: "vera", types: []string{"VERA"}, classes: []string{"VeraConfig"},
		keys: map[string]string{"r": "r", "target_modules": "target_modules", "init_from": "init_from"},
		rules: map[string]rule{
			"init_weights":        startAsHere,
			"d_initial":           func(t *translation, e entry) { t.take(e, "vera.d_initial") },
			"projection_prng_key": func(t *translation, e entry) { t.take(e, "vera.projection_prng_key") },
			"vera_dropout":        func(t *translation, e entry) { t.take(e, "vera.dropout") },
			"save_projection":     passed("the random matrices are always saved"),
		}},
}

// ia3Modules reads the modules whose inputs IA3 scales, a list or an expression.
func ia3Modules(t *translation, e entry) { t.put(e, "ia3.feedforward_modules", e.Value, "") }

// startAsHere reads a switch of PEFT's that starts a method at the base model, as it does here.
func startAsHere(t *translation, e entry) {
	if e.Value == true {
		t.add(Taken, e, "", nil, "a run starts at the base model")
		return
	}
	t.missing(e, "a run of this method always starts at the base model, with the update that PEFT has by default")
}

// methodOf returns the adapter method beside LoRA that a file asks for; nil = LoRA, or no adapter.
func methodOf(in *Input) *peftMethod {
	for i := range methods {
		m := &methods[i]
		for _, class := range m.classes {
			if in.calls[class] {
				return m
			}
		}
		for _, e := range in.entries {
			s, _ := e.Value.(string)
			for _, name := range m.types {
				if e.Key == "peft_type" && strings.EqualFold(s, name) {
					return m
				}
			}
			key := bareKey(e.Key)
			key = key[strings.LastIndexByte(key, '.')+1:]
			switch on, _ := fit(e.Value, Truth); {
			case m.adapter == "dora" && on == true && (key == "use_dora" || key == "peft_use_dora"):
				return m
			case (e.Key == "adapter" || e.Key == "finetuning_type") && s == m.adapter:
				return m
			}
		}
	}
	return nil
}

// usesAdapter reports whether a Python program makes an adapter.
func (in *Input) usesAdapter() bool {
	m := methodOf(in)
	return in.calls["LoraConfig"] || in.calls["get_peft_model"] || m != nil && in.callsAny(m.classes)
}

// ofMethod returns the path of a key in the section of the file's adapter method, for the path of LoRA's key. It
// returns false, and records why, if the method has no such key.
func ofMethod(t *translation, e entry, path string) (string, bool) {
	name, ofLoRA := strings.CutPrefix(path, "lora.")
	if !ofLoRA || t.peft == nil || t.peft.section == "lora" {
		return path, true
	}
	own, ok := t.peft.keys[name]
	switch {
	case ok:
		return t.peft.section + "." + own, true
	case e.peers == "" && isOff(e.Value):
		t.off(e)
	case e.peers == "":
		t.missing(e, "adapter: "+t.peft.adapter+" has no such key; docs/ADAPTERS.md lists those of the section "+
			t.peft.section)
	}
	return "", false
}

// useDoRA reads a switch of DoRA, which is a method of its own here.
func useDoRA(t *translation, e entry) {
	if on, ok := fit(e.Value, Truth); !ok || on != true {
		t.off(e)
		return
	}
	t.add(Taken, e, "adapter", "dora", "")
}

// nameMethod gives the key adapter the file's method, over base weights as they are or quantised.
func nameMethod(t *translation) {
	if t.peft == nil {
		return
	}
	name := t.peft.adapter
	switch i, set := t.at["adapter"]; {
	case !set:
		t.at["adapter"] = len(t.set)
		t.set = append(t.set, Setting{"adapter", name, "the file's method"})
	case t.set[i].Value == "qlora":
		name = "q" + name
		t.set[i].Value = name
	case t.set[i].Value == "lora":
		t.set[i].Value = name
	default: // the base model's own weights are trained
		return
	}
	for i := range t.entries {
		if e := &t.entries[i]; e.To == "adapter" {
			e.As = name
		}
	}
}
