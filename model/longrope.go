package model

import "math"

// rotaryDim returns the size from which frequencies are computed, truncated to an integer as in transformers.
func (c Config) rotaryDim() int {
	if c.Latent.Rotated > 0 {
		return c.Latent.Rotated
	}
	if c.PartialRotary == 0 {
		return c.HeadDim
	}
	return int(float64(c.HeadDim) * c.PartialRotary)
}

// RotaryColumns returns the number of rotated columns of a head, its first: R, even, at most D.
func (c Config) RotaryColumns() int { return (c.rotaryDim() + 1) / 2 * 2 }

// readPartialRotary reads partial_rotary_factor, which may stand beside or inside rope_scaling and rope_parameters. If
// it is absent, the dialect's default or 1 applies. In a file of transformers 5 the value inside rope_parameters
// applies: transformers 5 also writes the one beside it, possibly as the family's default, and does not read it.
func (c *Config) readPartialRotary(k *Keys) {
	if c.PartialRotary == 0 {
		c.PartialRotary = 1
	}
	given := k.Float("partial_rotary_factor", &c.PartialRotary)
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		part, ok := k.parts[key]
		if !ok {
			continue
		}
		if counts := key == "rope_parameters" && k.five; given && !counts && part != c.PartialRotary {
			k.Fail(key+".partial_rotary_factor", "= %g contradicts partial_rotary_factor = %g", part, c.PartialRotary)
		}
		c.PartialRotary, given = part, true
	}
	if p := c.PartialRotary; !(p > 0 && p <= 1) {
		k.Fail("partial_rotary_factor", "= %g: must be above 0 and at most 1", p)
	}
	if c.PartialRotary == 1 {
		c.PartialRotary = 0 // the whole head
	}
}

// readLongRope reads the length up to which the short factors apply, for families other than Phi-3. transformers 4
// reads it only beside rope_scaling and then ignores a factor; transformers 5 reads it in rope_parameters. If the two
// would compute different results, the file is refused.
func (c *Config) readLongRope(k *Keys, now bool) {
	const beside = "original_max_position_embeddings"
	s := &c.RopeScaling
	n := 0
	switch given := k.Int(beside, &n); {
	case given && n < 2:
		k.Fail(beside, "= %d: must be 2 to %d", n, 1<<30)
		return
	case given && s.OriginalMaxPositions != 0 && s.OriginalMaxPositions != n:
		k.Fail(beside, "= %d contradicts the %d of the rotary scaling", n, s.OriginalMaxPositions)
	case given:
		s.OriginalMaxPositions = n
		if ratio := float64(c.MaxPositions) / float64(n); !now && s.AttentionFactor == 0 && s.Factor != 0 &&
			s.Factor != ratio {
			k.Fail("rope_scaling.factor", "= %g: with %s beside rope_scaling transformers 4 takes "+
				"max_position_embeddings/%s = %g instead, and transformers 5 this one; remove it", s.Factor,
				beside, beside, ratio)
		}
	case !now && s.OriginalMaxPositions != 0:
		k.Fail("rope_scaling."+beside, "= %d: transformers 4 does not read it there for longrope, and transformers 5 "+
			"does; write it beside rope_scaling", s.OriginalMaxPositions)
	}
}

// LongRope reports whether sequences of up to longest tokens use two sets of frequencies (both), and up to which length
// the short set applies (limit).
func (c Config) LongRope(longest int) (limit int, both bool) {
	limit = c.longRopeOriginal()
	return limit, c.RopeScaling.Type == "longrope" && longest > limit
}

// longRopeOriginal returns the length in tokens up to which the short factors apply.
func (c Config) longRopeOriginal() int {
	if n := c.RopeScaling.OriginalMaxPositions; n > 0 {
		return n
	}
	return c.MaxPositions
}

func (c Config) longRopeProblems(check func(ok bool, key, format string, args ...any)) {
	r, original, pairs := c.RopeScaling, c.longRopeOriginal(), c.RotaryColumns()/2
	check(r.Factor == 0 || r.Factor >= 1 && r.Factor < 1e9, "rope_scaling.factor", "= %g: must be at least 1", r.Factor)
	check(r.AttentionFactor >= 0 && r.AttentionFactor < 1e9, "rope_scaling.attention_factor",
		"= %g: must not be negative", r.AttentionFactor)
	check(original > 1 || original <= 0, "rope_scaling.original_max_position_embeddings", "= %d: must be 2 to %d",
		original, 1<<30)
	for _, f := range []struct {
		key     string
		factors []float64
	}{{"short_factor", r.ShortFactor}, {"long_factor", r.LongFactor}} {
		check(len(f.factors) == pairs, "rope_scaling."+f.key,
			"has %d numbers, want %d: one for each pair of the %d columns of a head that are rotated", len(f.factors),
			pairs, 2*pairs)
		for i, v := range f.factors {
			check(v > 1e-6 && v < 1e9, "rope_scaling."+f.key, "[%d] = %g: must be above 0", i, v)
		}
	}
}

// longRope divides every frequency by its own factor, and scales by the square root of 1 + ln(stretch) / ln(original).
func (c Config) longRope(seqLen int) (f []float64, attentionScale float64) {
	r, original := c.RopeScaling, c.longRopeOriginal()
	factors := r.ShortFactor
	if seqLen > original {
		factors = r.LongFactor
	}
	f = frequencies(c.RopeTheta, c.rotaryDim())
	for i := range f {
		f[i] /= factors[i]
	}
	stretch := r.Factor
	if stretch == 0 {
		stretch = float64(c.MaxPositions) / float64(original)
	}
	switch {
	case r.AttentionFactor != 0:
		return f, r.AttentionFactor
	case stretch <= 1:
		return f, 1
	}
	return f, math.Sqrt(1 + math.Log(stretch)/math.Log(float64(original)))
}
