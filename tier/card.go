package tier

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// NvidiaSMI reads the memory of the first GPU that runs see from nvidia-smi; false where that is missing or does not
// answer.
func NvidiaSMI() (Card, bool) {
	first, _, _ := strings.Cut(os.Getenv("CUDA_VISIBLE_DEVICES"), ",")
	if first = strings.TrimSpace(first); first == "" {
		first = "0"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "-i", first, "--query-gpu=memory.used,memory.free", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return Card{}, false
	}
	used, free, ok := strings.Cut(strings.TrimSpace(string(out)), ",")
	u, uerr := strconv.ParseInt(strings.TrimSpace(used), 10, 64)
	f, ferr := strconv.ParseInt(strings.TrimSpace(free), 10, 64)
	return Card{u << 20, f << 20}, ok && uerr == nil && ferr == nil
}
