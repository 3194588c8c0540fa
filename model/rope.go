package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// RopeScaling describes how rotary frequencies are stretched beyond the length on which a model was first trained. Zero
// means not set for optional fields.
type RopeScaling struct {
	Type string // "default" (or ""), "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"
	// Factor is at least 1, for all types but default; optional for longrope (else MaxPositions /
	// OriginalMaxPositions).
	Factor               float64
	OriginalMaxPositions int     // llama3; optional for yarn and longrope (else MaxPositions)
	LowFreqFactor        float64 // llama3
	HighFreqFactor       float64 // llama3
	AttentionFactor      float64 // yarn and longrope, optional: factor of cos and sin
	MScale, MScaleAllDim float64 // yarn, optional: together they determine the attention factor
	BetaFast, BetaSlow   float64 // yarn, optional: default 32 and 1
	NoTruncate           bool    // yarn: "truncate": false keeps fractional bounds
	Proportion           float64 // proportional, optional: part of a head's frequencies that are not zero, 0 = all
	Alpha                float64 // hunyuan_v1_dense: dynamic stretches by it, whatever the length; 0 = by the length
	QueryBeta            float64 // ministral3: growth of queries with their position (Config.QueryScale); 0 = none
	// ShortFactor and LongFactor (longrope) divide the frequencies one by one; the long ones apply to sequences of more
	// than OriginalMaxPositions tokens.
	ShortFactor, LongFactor []float64
}

// ropeTypes lists the keys of each type; true = required.
var ropeTypes = map[string]map[string]bool{
	"default": {},
	"linear":  {"factor": true},
	// transformers accepts the original length for dynamic and does not use it.
	"dynamic": {"factor": true, "original_max_position_embeddings": false},
	"llama3": {"factor": true, "original_max_position_embeddings": true, "low_freq_factor": true,
		"high_freq_factor": true},
	// transformers also ignores attn_factor, which DeepSeek-R1-0528-Qwen3-8B sets.
	"yarn": {"factor": true, "original_max_position_embeddings": false, "attention_factor": false, "mscale": false,
		"mscale_all_dim": false, "beta_fast": false, "beta_slow": false, "truncate": false, "attn_factor": false},
	"longrope": {"short_factor": true, "long_factor": true, "factor": false, "attention_factor": false,
		"original_max_position_embeddings": false},
	// gemma4: frequencies are computed from the whole head size, and only the first part of them is not zero
	"proportional": {"partial_rotary_factor": false, "factor": false},
}

// alphaKeys are the keys of dynamic scaling in a dialect with RopeAlpha. transformers reads alpha alone.
var alphaKeys = map[string]bool{"factor": true, "alpha": false, "beta_fast": false, "beta_slow": false, "mscale": false,
	"mscale_all_dim": false, "original_max_position_embeddings": false}

// generalRopeTypes are the types of families that define none of their own.
var generalRopeTypes = map[string]string{"default": "default", "linear": "linear", "dynamic": "dynamic",
	"llama3": "llama3", "yarn": "yarn", "longrope": "longrope"}

// ropeNames maps the names of scaling types in a family's files to types.
func (d Dialect) ropeNames() map[string]string {
	if d.RopeTypes != nil {
		return d.RopeTypes
	}
	return generalRopeTypes
}

func listed[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// readRope reads rope_theta and rope_scaling (transformers 4) and
// rope_parameters (transformers 5, which holds both), and partial_rotary_factor
// beside or inside them.
func (c *Config) readRope(k *Keys) {
	haveTheta := k.Float("rope_theta", &c.RopeTheta)
	if k.dialect.Rope != nil && k.absent("rope_scaling") && k.absent("rope_parameters") {
		c.readDefaultRope(k, haveTheta)
		return
	}
	c.RopeScaling = RopeScaling{Type: "default"}
	old, oldTheta, haveOld := readRopeObject(k, "rope_scaling")
	now, nowTheta, haveNow := readRopeObject(k, "rope_parameters")
	if haveOld {
		c.RopeScaling = old
	}
	if haveNow {
		if haveOld && !reflect.DeepEqual(now, old) {
			k.Fail("rope_parameters", "and rope_scaling contradict each other")
		}
		c.RopeScaling = now
	}
	for key, theta := range map[string]float64{"rope_scaling": oldTheta, "rope_parameters": nowTheta} {
		if theta == 0 {
			continue
		}
		if haveTheta && theta != c.RopeTheta {
			k.Fail(key+".rope_theta", "= %g contradicts rope_theta = %g", theta, c.RopeTheta)
		}
	}
	switch {
	case nowTheta != 0:
		c.RopeTheta = nowTheta
	case oldTheta != 0:
		c.RopeTheta = oldTheta
	}
	if k.dialect.PartialRotary {
		c.readPartialRotary(k)
	}
	if k.dialect.RopeTypes == nil && c.RopeScaling.Type == "longrope" {
		c.readLongRope(k, haveNow)
	}
}

// DefaultRope is the rotation for a family's files that define no rotary scaling, not even the plain one.
type DefaultRope struct {
	Theta   float64
	Scaling RopeScaling
}

// readDefaultRope applies the dialect's rotation to a file without one. transformers then ignores rope_theta.
func (c *Config) readDefaultRope(k *Keys, haveTheta bool) {
	k.Drop("rope_scaling")
	k.Drop("rope_parameters")
	d := k.dialect.Rope
	if haveTheta && c.RopeTheta != d.Theta {
		k.Fail("rope_theta",
			"= %g: without rope_parameters it is %g, whatever rope_theta says; write both in rope_parameters",
			c.RopeTheta, d.Theta)
	}
	c.RopeTheta, c.RopeScaling = d.Theta, d.Scaling
}

// splitRope splits rope_parameters that hold an object for each kind of layer, as transformers 5 writes them. The full
// layers' object replaces rope_parameters; a dialect that supports it gets the windowed layers' object beside it.
func (k *Keys) splitRope() {
	var kinds map[string]json.RawMessage
	if json.Unmarshal(k.raw["rope_parameters"], &kinds) != nil || kinds[FullAttention] == nil &&
		kinds[SlidingAttention] == nil {
		return
	}
	for kind, raw := range kinds {
		k.raw["rope_parameters."+kind] = raw
	}
	k.Drop("rope_parameters")
	if full := "rope_parameters." + FullAttention; k.Has(full) {
		k.raw["rope_parameters"] = k.raw[full]
		k.Drop(full)
	}
}

// Rope reads an object like rope_parameters; theta is 0 if the object has none.
func (k *Keys) Rope(key string) (r RopeScaling, theta float64, ok bool) {
	return readRopeObject(k, key)
}

func readRopeObject(parent *Keys, key string) (r RopeScaling, theta float64, ok bool) {
	var raw json.RawMessage
	if !parent.take(key, "an object", &raw) {
		return r, 0, false
	}
	fields, err := object(raw)
	if err != nil {
		parent.Fail(key, "= %s: %v", shown(raw), err)
		return r, 0, false
	}
	k := &Keys{raw: fields, bad: parent.bad, scope: key + "."}
	name := "rope_type"
	var former string // name of the key before transformers 4.43
	if k.Text("type", &former) {
		r.Type, name = former, "type"
	}
	names := parent.dialect.ropeNames()
	if k.Text("rope_type", &r.Type) && former != "" && former != r.Type && (names[former] == "" ||
		names[former] != names[r.Type]) {
		k.Fail("type", "= %q contradicts rope_type = %q", former, r.Type)
	}
	if r.Type == "" && strings.HasPrefix(key, "rope_parameters") {
		r.Type = "default"
	}
	kind, known := names[r.Type]
	if !known {
		if r.Type == "" {
			k.Fail(name, "is missing (supported: %s)", listed(names))
		} else {
			k.Fail(name, "= %q is not supported (supported: %s)", r.Type, listed(names))
		}
		return RopeScaling{Type: "default"}, 0, false
	}
	r.Type = kind
	takes := ropeTypes[kind]
	if parent.dialect.QueryScale {
		takes = withQueryScale(kind, takes)
	}
	if parent.dialect.RopeAlpha && kind == "dynamic" {
		takes = alphaKeys
	}
	for _, field := range slices.Sorted(maps.Keys(takes)) {
		if takes[field] && k.absent(field) {
			k.Fail(field, "is missing; %s needs it", parent.dialect.neededBy(field, kind))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		_, takenHere := takes[field]
		switch {
		case takenHere || field == "rope_theta" || string(fields[field]) == "null":
		case (field == "mrope_section" || field == "mrope_interleaved") && parent.dialect.MRoPE:
			k.Drop(field)
		case field == "partial_rotary_factor" && parent.dialect.PartialRotary:
			var part float64
			k.Float(field, &part)
			parent.parts[key] = part
		case field == "partial_rotary_factor" && fixedKeys[field].allows(fields[field]):
			k.Drop(field)
		default:
			k.Fail(field, "= %s: rope type %q has no such key", shown(fields[field]), r.Type)
		}
	}
	k.Float("rope_theta", &theta)
	k.Float("factor", &r.Factor)
	r.readProportion(k)
	if k.Int(originalLength, &r.OriginalMaxPositions) && r.OriginalMaxPositions == 0 {
		k.Fail(originalLength, "= 0: must be 1 to %d", 1<<30)
	}
	k.Float(queryBeta, &r.QueryBeta)
	k.Float("alpha", &r.Alpha)
	k.Int("max_position_embeddings", new(int))
	k.Float("low_freq_factor", &r.LowFreqFactor)
	k.Float("high_freq_factor", &r.HighFreqFactor)
	k.Float("attention_factor", &r.AttentionFactor)
	k.Float("mscale", &r.MScale)
	k.Float("mscale_all_dim", &r.MScaleAllDim)
	k.Float("beta_fast", &r.BetaFast)
	k.Float("beta_slow", &r.BetaSlow)
	k.take("short_factor", "a list of numbers", &r.ShortFactor)
	k.take("long_factor", "a list of numbers", &r.LongFactor)
	k.Float("attn_factor", new(float64))
	truncate := !k.null("truncate") // null counts as false, as in Python
	k.Bool("truncate", &truncate)
	r.NoTruncate = !truncate
	return r, theta, true
}

func (c Config) ropeProblems(check func(ok bool, key, format string, args ...any)) {
	if local, own := c.LocalRope(); own {
		local.LocalRopeTheta = 0
		local.ropeProblems(func(ok bool, key, format string, args ...any) {
			_, field, _ := strings.Cut(key, ".")
			check(ok, "rope_parameters."+SlidingAttention+"."+field, format, args...)
		})
	}
	check(c.RopeTheta > 1 && c.RopeTheta < 1e30, "rope_theta", "= %g: must be above 1", c.RopeTheta)
	check(c.LocalRopeTheta == 0 || c.LocalRopeTheta > 1 && c.LocalRopeTheta < 1e30, "rope_local_base_freq",
		"= %g: must be above 1", c.LocalRopeTheta)
	r := c.RopeScaling
	kind := r.Type
	if kind == "" {
		kind = "default"
	}
	takes, known := ropeTypes[kind]
	check(known, "rope_scaling.rope_type", "= %q is not supported (supported: %s)", r.Type, listed(ropeTypes))
	check(c.PartialRotary >= 0 && c.PartialRotary < 1 && (c.HeadDim < 2 || c.rotaryDim() > 0), "partial_rotary_factor",
		"= %g: rotates nothing of a head of %d", c.PartialRotary, c.HeadDim)
	if takes["factor"] {
		check(r.Factor >= 1 && r.Factor < 1e9, "rope_scaling.factor", "= %g: must be at least 1", r.Factor)
	}
	check(r.OriginalMaxPositions >= 0 && r.OriginalMaxPositions <= 1<<30,
		"rope_scaling.original_max_position_embeddings", "= %d: must be 1 to %d", r.OriginalMaxPositions, 1<<30)
	check(r.QueryBeta >= 0, "rope_scaling."+queryBeta, "= %g: must not be negative", r.QueryBeta)
	check(r.QueryBeta < 1e9, "rope_scaling."+queryBeta, "= %g: must be below 1e9", r.QueryBeta)
	switch kind {
	case "longrope":
		c.longRopeProblems(check)
	case "proportional":
		c.proportionalProblems(check)
	case "dynamic":
		check(r.Alpha >= 0 && r.Alpha < 1e9, "rope_scaling.alpha", "= %g: must be above 0", r.Alpha)
		check(c.rotaryDim() > 2, "rope_scaling.rope_type", "= %q needs a head size above 2, not %d",
			kind, c.rotaryDim())
	case "llama3":
		check(r.OriginalMaxPositions > 0, "rope_scaling.original_max_position_embeddings", "= %d: must be 1 to %d",
			r.OriginalMaxPositions, 1<<30)
		check(r.LowFreqFactor > 0, "rope_scaling.low_freq_factor", "= %g: must be above 0", r.LowFreqFactor)
		check(r.HighFreqFactor > r.LowFreqFactor && r.HighFreqFactor < 1e9, "rope_scaling.high_freq_factor",
			"= %g: must be above low_freq_factor %g", r.HighFreqFactor, r.LowFreqFactor)
	case "yarn":
		for _, f := range []struct {
			key   string
			value float64
		}{{"attention_factor", r.AttentionFactor}, {"mscale", r.MScale}, {"mscale_all_dim", r.MScaleAllDim},
			{"beta_fast", r.BetaFast}, {"beta_slow", r.BetaSlow}} {
			check(f.value >= 0 && f.value < 1e9, "rope_scaling."+f.key, "= %g: must not be negative", f.value)
		}
		fast, slow := r.betas()
		check(fast >= slow, "rope_scaling.beta_fast", "= %g: must not be below beta_slow %g", fast, slow)
	}
}

// InvFreq returns the inverse frequencies [R/2] in radians per position, and the factor of cos and sin. Only "dynamic"
// and "longrope" depend on seqLen (in tokens): the longest sequence of the run for "dynamic", the length of one
// sequence for "longrope". Up to MaxPositions and OriginalMaxPositions, respectively, it has no effect. Formulas:
// transformers' modeling_rope_utils (RoFormer, arXiv 2104.09864; YaRN, 2309.00071; LongRoPE, 2402.13753; Llama 3.1's
// code), computed here in float64.
func (c Config) InvFreq(seqLen int) (invFreq []float64, attentionScale float64, err error) {
	bad := map[string]string{}
	c.ropeProblems(func(ok bool, key, format string, args ...any) {
		if !ok && bad[key] == "" {
			bad[key] = fmt.Sprintf(format, args...)
		}
	})
	if c.HeadDim < 2 || c.HeadDim%2 != 0 {
		bad["head_dim"] = fmt.Sprintf("= %d: rotary embedding needs an even head size", c.HeadDim)
	}
	if c.MaxPositions < 1 {
		bad["max_position_embeddings"] = fmt.Sprintf("= %d: must be at least 1", c.MaxPositions)
	}
	if err := problemList(bad); err != nil {
		return nil, 0, fmt.Errorf("rotary frequencies: %w", err)
	}
	r, dim := c.RopeScaling, c.rotaryDim()
	switch r.Type {
	case "linear":
		invFreq = frequencies(c.RopeTheta, dim)
		for i := range invFreq {
			invFreq[i] /= r.Factor
		}
	case "dynamic":
		d, limit := float64(dim), float64(c.MaxPositions)
		length := max(float64(seqLen), limit)
		stretch := r.Factor*length/limit - (r.Factor - 1)
		if r.Alpha != 0 {
			stretch = r.Alpha
		}
		invFreq = frequencies(c.RopeTheta*math.Pow(stretch, d/(d-2)), dim)
	case "llama3":
		invFreq = r.llama3(frequencies(c.RopeTheta, dim))
	case "yarn":
		invFreq, attentionScale = c.yarn()
		return invFreq, attentionScale, nil
	case "longrope":
		invFreq, attentionScale = c.longRope(seqLen)
		return invFreq, attentionScale, nil
	case "proportional":
		invFreq = c.proportional()
	default:
		invFreq = frequencies(c.RopeTheta, dim)
	}
	return invFreq, 1, nil
}

// LongestRow returns the longest row, in tokens, that may be trained or evaluated: MaxPositions, or Factor times as
// many with "dynamic" scaling, whose frequencies depend on the longest row.
func (c Config) LongestRow() int {
	if c.RopeScaling.Type != "dynamic" || c.RopeScaling.Alpha != 0 {
		return c.MaxPositions
	}
	return int(min(float64(c.MaxPositions)*c.RopeScaling.Factor, 1<<30))
}

// frequencies returns theta^(-2i/dim) for 2i < dim.
func frequencies(theta float64, dim int) []float64 {
	f := make([]float64, (dim+1)/2)
	for i := range f {
		f[i] = 1 / math.Pow(theta, float64(2*i)/float64(dim))
	}
	return f
}

// llama3 divides the slow frequencies by the factor, keeps the fast ones and
// blends in between.
func (r RopeScaling) llama3(f []float64) []float64 {
	length := float64(r.OriginalMaxPositions)
	for i, w := range f {
		wavelength := 2 * math.Pi / w
		switch {
		case wavelength > length/r.LowFreqFactor:
			f[i] = w / r.Factor
		case wavelength >= length/r.HighFreqFactor:
			keep := (length/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
			f[i] = (1-keep)*w/r.Factor + keep*w
		}
	}
	return f
}

func (r RopeScaling) betas() (fast, slow float64) {
	fast, slow = 32, 1
	if r.BetaFast != 0 {
		fast = r.BetaFast
	}
	if r.BetaSlow != 0 {
		slow = r.BetaSlow
	}
	return fast, slow
}

// yarn divides a frequency by the factor if it turns less than beta_slow times over the original length, keeps it above
// beta_fast turns, and interpolates between.
func (c Config) yarn() (f []float64, attentionScale float64) {
	r := c.RopeScaling
	length := float64(c.MaxPositions)
	if r.OriginalMaxPositions > 0 {
		length = float64(r.OriginalMaxPositions)
	}
	dimension := func(turns float64) float64 {
		return float64(c.rotaryDim()) * math.Log(length/(turns*2*math.Pi)) / (2 * math.Log(c.RopeTheta))
	}
	fast, slow := r.betas()
	low, high := dimension(fast), dimension(slow)
	if !r.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(c.rotaryDim()-1))
	if low == high {
		high += 0.001 // transformers' guard against a division by zero
	}
	f = frequencies(c.RopeTheta, c.rotaryDim())
	for i, w := range f {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		f[i] = w/r.Factor*ramp + w*(1-ramp)
	}
	return f, r.yarnScale()
}

func (r RopeScaling) yarnScale() float64 {
	scale := func(m float64) float64 {
		if r.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(r.Factor) + 1
	}
	switch {
	case r.AttentionFactor != 0:
		return r.AttentionFactor
	case r.MScale != 0 && r.MScaleAllDim != 0:
		return scale(r.MScale) / scale(r.MScaleAllDim)
	}
	return scale(1)
}
