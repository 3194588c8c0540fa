package importer

import (
	"regexp"
	"strings"
)

const (
	paged    = "its states are in host memory if they do not fit on the device (training.optimizer_offload: auto)"
	asBits   = "its moments are in the 8 bits of bitsandbytes, not of torchao"
	in32Bits = "its moments are kept in float32"
	in8Bits  = "its moments are kept in 8 bits"
)

// named is our optimizer for another program's name of one.
type named struct {
	ours     string
	say      string         // difference, if any
	settings map[string]any // our keys whose defaults differ from that program's
}

// optimizers maps other programs' names, in lower case, to our optimizers. Names that are no key here are AdamW's
// if they
// say so.
var optimizers = map[string]named{
	"adamw_torch": {ours: "adamw"}, "adamw_torch_fused": {ours: "adamw"}, "adamw_hf": {ours: "adamw"},
	"adamw": {ours: "adamw"}, "torch.optim.adamw": {ours: "adamw"},
	"adamw_8bit": {ours: "adamw_8bit"}, "adamw_bnb_8bit": {ours: "adamw_8bit"},
	"bitsandbytes.optim.adamw8bit": {ours: "adamw_8bit"}, "bnb.optim.adamw8bit": {ours: "adamw_8bit"},
	"paged_adamw_8bit":                   {ours: "adamw_8bit", say: paged},
	"bitsandbytes.optim.pagedadamw8bit":  {ours: "adamw_8bit", say: paged},
	"bnb.optim.pagedadamw8bit":           {ours: "adamw_8bit", say: paged},
	"paged_adamw":                        {ours: "adamw", say: paged},
	"paged_adamw_32bit":                  {ours: "adamw", say: paged},
	"bitsandbytes.optim.pagedadamw":      {ours: "adamw", say: paged},
	"bitsandbytes.optim.pagedadamw32bit": {ours: "adamw", say: paged},
	"adamw_torch_8bit":                   {ours: "adamw_8bit", say: asBits}, "ao_adamw_8bit": {ours: "adamw_8bit",
		say: asBits},
	"torchao.optim.adamw8bit": {ours: "adamw_8bit", say: asBits},
	"lion":                    {ours: "lion"}, "lion_32bit": {ours: "lion"}, "bitsandbytes.optim.lion": {ours: "lion"},
	"paged_lion": {ours: "lion", say: paged}, "paged_lion_32bit": {ours: "lion", say: paged},
	"lion_8bit": {ours: "lion_8bit"}, "bitsandbytes.optim.lion8bit": {ours: "lion_8bit"},
	"paged_lion_8bit": {ours: "lion_8bit", say: paged}, "bitsandbytes.optim.pagedlion8bit": {ours: "lion_8bit",
		say: paged},
	"sgd": plainSGD, "torch.optim.sgd": plainSGD,
	"adafactor": {ours: "adafactor"}, "transformers.optimization.adafactor": {ours: "adafactor"},
	"schedule_free_adamw": {ours: "schedule_free_adamw"},
	"muon":                original, "torch.optim.muon": original,
}

// plainSGD has no momentum, and original is Muon with torch's own scale of the learning rate.
var (
	plainSGD = named{ours: "sgd", settings: map[string]any{"training.sgd_momentum": 0.0}}
	original = named{ours: "muon", settings: map[string]any{"training.muon_adjust_lr": "original"}}
)

// otherAdamW matches optimizers with AdamW in their names and another formula.
var otherAdamW = regexp.MustCompile("stable|schedule_?free|galore|grok|apollo|anyprecision")

func optimizer(t *translation, e entry) {
	given, _ := e.Value.(string)
	s := strings.ToLower(given)
	o, known := optimizers[s]
	switch {
	case known:
		t.put(e, "training.optimizer", o.ours, o.say)
		for path, v := range o.settings {
			if t.given["momentum"].Value == nil || path != "training.sgd_momentum" {
				t.put(e, path, v, "")
			}
		}
	case strings.Contains(s, "lion") && strings.Contains(s, "8bit"):
		t.put(e, "training.optimizer", "lion_8bit", in8Bits)
	case strings.Contains(s, "lion"):
		t.put(e, "training.optimizer", "lion", in32Bits)
	case strings.Contains(s, "adamw") && !otherAdamW.MatchString(s):
		t.put(e, "training.optimizer", "adamw", "the same formula, its moments kept in float32")
	default:
		t.missing(e,
			"training.optimizer is adamw, adamw_8bit, lion, lion_8bit, adafactor, muon, schedule_free_adamw or "+
				"sgd; adamw is the default")
	}
}

// optimizersUnread drops keys of AdamW that the optimizer does not read, which other programs set for every optimizer.
func optimizersUnread(t *translation) {
	if t.value("adapter") != "full" {
		t.dropUnread("full.stochastic_rounding", "an adapter's tensors are kept in float32")
	}
	of, _ := t.value("training.optimizer").(string)
	switch of {
	case "lion", "lion_8bit":
		t.dropUnread("training.adam_epsilon", of+" has none")
	case "sgd", "adafactor":
		for _, key := range []string{"adam_beta1", "adam_beta2", "adam_epsilon"} {
			t.dropUnread("training."+key, of+" has none")
		}
	}
}
