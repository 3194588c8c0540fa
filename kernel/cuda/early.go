package cuda

import "strings"

// earlyStems are the sources whose kernels all wait by themselves for what they depend on (early.cuh).
var earlyStems = map[string]bool{
	"attention_cached": true, "attention_grouped": true, "embedding": true, "kvappend": true, "likeliest": true, "rope": true, "rope_append": true,
	"skinny": true, "skinny_any": true, "skinny_several": true, "skinny_tile": true, "skinny_tile_nf4": true,
	"swiglu": true,
}

// WaitsItself tells whether a kernel waits by itself for what it depends on, so that it may be launched before that has
// ended. Of the norms those of whole rows do.
func WaitsItself(stem, entry string) bool {
	return earlyStems[stem] || stem == "rmsnorm" && strings.HasSuffix(entry, "_forward") &&
		!strings.Contains(entry, "_heads_")
}
