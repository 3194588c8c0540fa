package adapter

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
)

// TestKeysThatDoNotGoTogether: biases, and LoRA on embeddings and head, are refused beside what they exclude.
func TestKeysThatDoNotGoTogether(t *testing.T) {
	head := func(l *LoRA) { l.TargetModules = Targets{"lm_head", "q_proj"} }
	for _, c := range []struct {
		want string
		edit func(l *LoRA)
	}{
		{"", head},
		{"lora.dropout: 0.1 does not go with lm_head in lora.target_modules: its update is part of the matrix that " +
			"the loss takes, whose input can't be dropped apart; write 0", func(l *LoRA) { head(l); l.Dropout = 0.1 }},
		{"lora.init_lora_weights: pissa starts from the weight of a linear layer, and lora.target_modules [lm_head " +
			"q_proj] name embeddings or the vocabulary head: leave one of the two out",
			func(l *LoRA) { head(l); l.InitLoRAWeights = "pissa" }},
		{"lora.loraplus_lr_ratio: LoRA+ gives embeddings a rate of their own, which is not supported: leave " +
			"embeddings and head out of lora.target_modules [lm_head q_proj], or the key",
			func(l *LoRA) { head(l); l.LoRAPlusLRRatio = 4 }},
		{"lora.lora_bias: it does not go with embeddings or the vocabulary head in lora.target_modules [lm_head " +
			"q_proj], as in PEFT: leave one of the two out", func(l *LoRA) { head(l); l.LoRABias = true }},
		{"lora.trainable_token_indices: it does not go with embeddings or the vocabulary head in lora.target_modules " +
			"[lm_head q_proj]: leave one of the two out",
			func(l *LoRA) { head(l); l.TrainableTokenIndices = []string{"3"} }},
		{`lora.bias: "some" is not one of none, all, lora_only`, func(l *LoRA) { l.Bias = "some" }},
		{"lora.lora_bias: it does not go with lora.init_lora_weights: olora, whose adapter is saved as the " +
			"difference of two: leave one of the two out", func(l *LoRA) { l.LoRABias, l.InitLoRAWeights = true, "olora" }},
		{"lora.lora_bias: it does not go with lora.target_parameters, as in PEFT: parameters have no bias; leave " +
			"one of the two out", func(l *LoRA) { l.LoRABias, l.TargetParameters = true, []string{"experts.down_proj"} }},
	} {
		l := LoRA{Shared: Default().Shared}
		c.edit(&l)
		if err := errors.Join(l.Validate()...); fmt.Sprint(err) != cmp.Or(c.want, "<nil>") {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	l := LoRA{Shared: Default().Shared}
	l.LoRABias = true
	if got := checkDoRA(l.Config()); len(got) != 1 || got[0].Error() != "lora.lora_bias: it does not go with DoRA, whose "+
		"magnitudes scale the weight alone; leave the key out, or write adapter: lora" {
		t.Errorf("DoRA: %v", got)
	}
}
