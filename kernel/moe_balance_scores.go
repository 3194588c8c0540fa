package kernel

import "math"

// A row's scores are the weights of its k experts, softmax of their logits, and zeros for the others. Their softmax over all E
// experts is p_e = exp(score_e) / all, where a score is at most 1 and exp(0) is 1.

// scoresOf are the scores of a row's k largest logits, and the sum of exp(score) over all its logits.
func scoresOf[F Float](logits []F, k int) (experts [MaxTopK]int32, scores [MaxTopK]float64, all float64) {
	for j := range min(k, MaxTopK) {
		experts[j] = int32(nextExpert(logits, experts[:j]))
	}
	top, sum := float64(logits[experts[0]]), 0.0
	for j := range min(k, MaxTopK) {
		scores[j] = math.Exp(float64(logits[experts[j]]) - top)
		sum += scores[j]
	}
	all = float64(len(logits) - k)
	for j := range min(k, MaxTopK) {
		scores[j] /= sum
		all += math.Exp(scores[j])
	}
	return experts, scores, all
}

// addScores counts a row's k largest logits, and adds the softmax of its scores.
func addScores[F Float](chosen, mean []float64, logits []F, k int) {
	experts, scores, all := scoresOf(logits, k)
	for e := range mean {
		mean[e] += 1 / all
	}
	for j, e := range experts[:min(k, MaxTopK)] {
		chosen[e]++
		mean[e] += (math.Exp(scores[j]) - 1) / all
	}
}

// scoresRow is weight * d(sum of chosen_e p_e)/dlogits of a row.
func scoresRow[F Float](dl, logits []F, chosen []float64, k int, weight float64) {
	experts, scores, all := scoresOf(logits, k)
	inner := 0.0 // sum of chosen_e p_e
	for _, f := range chosen {
		inner += f / all
	}
	for j, e := range experts[:min(k, MaxTopK)] {
		inner += float64(chosen[e] * (math.Exp(scores[j]) - 1) / all)
	}
	var d [MaxTopK]float64 // for the scores
	mean := 0.0
	for j, e := range experts[:min(k, MaxTopK)] {
		d[j] = math.Exp(scores[j]) / all * (chosen[e] - inner)
		mean += float64(d[j] * scores[j])
	}
	clear(dl)
	for j, e := range experts[:min(k, MaxTopK)] {
		dl[e] = F(weight * scores[j] * (d[j] - mean))
	}
}
