package adapter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// startLoftQ starts from the rounding error of the quantised weight Q of W: s B A is the best approximation of W - Q of
// that rank (Li et al., "LoftQ", 2023). The base model stays as it is. PEFT leaves the factor s out of A and B, so that
// its model is near the unquantised one only where alpha is r; here it is for every alpha.
func startLoftQ(c Config, f Fresh, a, b Param, _ int) error { return startIteratedLoftQ(c, f, a, b, 1) }

// startIteratedLoftQ alternates n times: Q becomes the quantised W - s B A, and s B A what approximates W - Q. The base
// weight loses the s B A of the last time but one.
func startIteratedLoftQ(c Config, f Fresh, a, b Param, n int) error {
	if n < 1 {
		return fmt.Errorf("%s: loftq_iter_%d takes no step; write 1 or more", c.Key("init_lora_weights"), n)
	}
	w, err := f.Weight()
	if err != nil {
		return err
	}
	var plain, last float64
	for at := range n {
		var less Merger
		if at > 0 {
			if less, err = lessLoRA(c, f.Layer, []Param{a, b}); err != nil {
				return err
			}
		}
		if at == n-1 {
			f.Take([]Param{copied(a), copied(b)})
		}
		off, err := f.ComputedRest(less)
		if err != nil {
			return err
		}
		for i, x := range w.data {
			off.data[i] = x - off.data[i]
		}
		last = off.squares()
		if at == 0 {
			plain = last
		}
		if last == 0 {
			return fmt.Errorf("%s: %s starts from the rounding of quantised base weights, and that of %s has none; "+
				"write adapter: qlora with a base model that is not quantised yet, or leave the key out",
				c.Key("init_lora_weights"), c.lora().InitLoRAWeights, f.Layer)
		}
		for _, p := range []Param{a, b} {
			clear(p.Data)
		}
		t, err := leading(off, a.Shape[0], f.Uniform(a.Name))
		if err != nil {
			return fmt.Errorf("decompose the rounding error of %s%s: %w", f.Layer, weightSuffix, err)
		}
		fillFromTriplets(c, f, a, b, t)
		for _, s := range t.s {
			last -= s * s
		}
	}
	f.Corrected(w.squares(), plain, max(last, 0))
	return nil
}

// checkLoftQ refuses a folder whose base weight is not the quantised one: after one step PEFT's is, after more it is a
// quantised W - B A that no file has.
func checkLoftQ(raw json.RawMessage, bad func(format string, args ...any)) {
	var c struct {
		Steps *int `json:"loftq_iter"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &c) != nil {
		bad("loftq_config is %s: it is no object with a number loftq_iter", bytes.TrimSpace(raw))
		return
	}
	if c.Steps != nil && *c.Steps != 1 {
		bad("loftq_config has loftq_iter %d: the adapter belongs to weights that PEFT quantised after it took a part of "+
			"them off, which are not in the folder; one of loftq_iter 1 belongs to the base model in NF4", *c.Steps)
	}
}

// copied returns a tensor with numbers of its own.
func copied(p Param) Param {
	p.Data = slices.Clone(p.Data)
	return p
}
