package dataset

// maxCompared bounds the work of comparing two answers: the product of their lengths in tokens.
const maxCompared = 4_000_000

// markDifferences sets Differs in the tokens of a pair that only one of its two sequences has: those that are in no
// longest common subsequence of both. Answers that are too long to compare differ from the first to the last token that
// differs.
func (in *Inspected) markDifferences(row Row) {
	if row.Sequences() != 2 {
		return
	}
	a, b := in.Tokens[:row.Borders[0]], in.Tokens[row.Borders[0]:]
	for len(a) > 0 && len(b) > 0 && a[0].ID == b[0].ID {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1].ID == b[len(b)-1].ID {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	for _, tokens := range [][]Token{a, b} {
		for i := range tokens {
			tokens[i].Differs = true
		}
	}
	if len(a)*len(b) <= maxCompared {
		markCommon(a, b)
	}
}

// markCommon clears Differs in the tokens of a longest common subsequence.
func markCommon(a, b []Token) {
	width := len(b) + 1
	longest := make([]int32, (len(a)+1)*width) // of a[i:] and b[j:]
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].ID == b[j].ID {
				longest[i*width+j] = longest[(i+1)*width+j+1] + 1
			} else {
				longest[i*width+j] = max(longest[(i+1)*width+j], longest[i*width+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i].ID == b[j].ID:
			a[i].Differs, b[j].Differs = false, false
			i, j = i+1, j+1
		case longest[(i+1)*width+j] >= longest[i*width+j+1]:
			i++
		default:
			j++
		}
	}
}
