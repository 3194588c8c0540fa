package dataset

import "github.com/tierlora/tierlora/internal/words"

// didYouMean returns a hint with the nearest of the names, or "" if none is near.
func didYouMean(name string, names []string) string {
	if near, ok := nearest(name, names); ok {
		return "; did you mean " + near + "?"
	}
	return ""
}

// nearest returns the name with the smallest edit distance, if that is at most half of the longer length, or else the
// first name that contains the other. The first of equally near names wins.
func nearest(name string, names []string) (string, bool) {
	best, bestDistance := "", 1<<30
	for _, n := range names {
		if len(n) > 64 || len(name) > 64 { // a key this long is not a misspelt one
			continue
		}
		if d := words.EditDistance(name, n); d < bestDistance && 2*d <= max(len(name), len(n)) {
			best, bestDistance = n, d
		}
	}
	return best, best != ""
}
