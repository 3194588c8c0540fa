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
			"update"), "miss_dropout": onlyOff("adapter: miss has no dropout")}},
	{adapter: "lokr", section: "lokr", types: []string{"LOKR"}, classes: []string{"LoKrConfig"},
		keys: map[string]string{"r": "r", "alpha": "alpha", "target_modules": "target_modules",
			"init_from": "init_from"},
		rules: map[string]rule{
			"init_weights":         startAsHere,
			"alpha":                func(t *translation, e entry) { t.take(e, "lokr.alpha") },
			"decompose_both":       func(t *translation, e entry) { t.take(e, "lokr.decompose_both") },
			"decompose_factor":     lokrFactor,
			"rank_dropout":         onlyOff("adapter: lokr has no dropout"),
			"module_dropout":       onlyOff("adapter: lokr has no dropout"),
			"use_effective_conv2d": passed("of convolutions, which no model here adapts"),
		}},
	{adapter: "oft", section: "oft", types: []string{"OFT"}, classes: []string{"OFTConfig"},
		keys: map[string]string{"target_modules": "target_modules", "init_from": "init_from"},
		rules: map[string]rule{
			"init_weights":             startAsHere,
			"oft_block_size":           func(t *translation, e entry) { t.take(e, "oft.oft_block_size") },
			"num_cayley_neumann_terms": func(t *translation, e entry) { t.take(e, "oft.num_cayley_neumann_terms") },
			"r":                        onlyOff("give oft.oft_block_size, the inputs of a block"),
			"coft":                     onlyOff("the constrained form is another update"),
			"block_share":              onlyOff("each block has a matrix of its own"),
			"module_dropout":           onlyOff("adapter: oft has no dropout"),
			"eps":                      passed("of coft, which is off unless it is named"),
			"use_cayley_neumann":       oftSeries,
		}},
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

// onlyOff reads a key that must be off; say is why.
func onlyOff(say string) rule { return func(t *translation, e entry) { t.ifOn(e, say) } }

// oftSeries reads whether the inverse in Cayley's formula is a series, as it is here.
func oftSeries(t *translation, e entry) {
	if e.Value == true {
		t.add(Taken, e, "", nil, "as it is here")
		return
	}
	t.missing(e, "the exact inverse is not computed here: oft.num_cayley_neumann_terms says how near the series is")
}

// lokrFactor reads the size of LoKr's first factor; -1 stands for the square root, as 0 does here.
func lokrFactor(t *translation, e entry) {
	if n, ok := fit(e.Value, Whole); ok && n.(int64) < 0 {
		t.add(Taken, e, "", nil, "the default")
		return
	}
	t.take(e, "lokr.decompose_factor")
}

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
