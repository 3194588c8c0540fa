package ranks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// maxNodelist bounds the text of a list of nodes.
const maxNodelist = 1 << 20

// Nodes returns the hosts of a SLURM list of nodes in order: "gpu[01-03,7],rack[0-1]n[0-1]". Ranges keep leading zeros;
// with several brackets the last one changes fastest.
func Nodes(list string) ([]string, error) {
	if len(list) > maxNodelist {
		return nil, fmt.Errorf("%d bytes are more than a list of nodes may have", len(list))
	}
	var hosts []string
	for rest := list; ; {
		entry, more, err := cutEntry(rest)
		if err != nil {
			return nil, err
		}
		these, err := expand(entry, MaxWorld-len(hosts))
		if err != nil {
			return nil, err
		}
		if hosts = append(hosts, these...); more == nil {
			return hosts, nil
		}
		rest = *more
	}
}

// cutEntry splits a list at its first comma outside of brackets.
func cutEntry(list string) (entry string, more *string, err error) {
	inside := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '[' && !inside:
			inside = true
		case c == ']' && inside:
			inside = false
		case c == '[' || c == ']':
			return "", nil, fmt.Errorf("%q at byte %d is out of place", c, i+1)
		case c == ',' && !inside:
			rest := list[i+1:]
			return list[:i], &rest, nil
		case c <= ' ' || c == 0x7f:
			return "", nil, fmt.Errorf("byte %d is no part of a host's name", i+1)
		}
	}
	if inside {
		return "", nil, errors.New("a bracket is not closed")
	}
	return list, nil, nil
}

// expand returns the hosts of one entry, at most `most`.
func expand(entry string, most int) ([]string, error) {
	if entry == "" {
		return nil, errors.New("a host has no name")
	}
	hosts := []string{""}
	for entry != "" {
		plain, rest, bracket := strings.Cut(entry, "[")
		values := []string{""}
		if entry = ""; bracket {
			within, after, _ := strings.Cut(rest, "]")
			var err error
			if values, err = ranges(within, most); err != nil {
				return nil, err
			}
			entry = after
		}
		if len(plain)+len(values[len(values)-1]) > 253 {
			return nil, errors.New("a host's name has more than 253 bytes")
		}
		if len(hosts)*len(values) > most {
			return nil, fmt.Errorf("more than %d hosts", MaxWorld)
		}
		next := make([]string, 0, len(hosts)*len(values))
		for _, h := range hosts {
			for _, value := range values {
				if len(h)+len(plain)+len(value) > 253 {
					return nil, errors.New("a host's name has more than 253 bytes")
				}
				next = append(next, h+plain+value)
			}
		}
		hosts = next
	}
	if len(hosts) > most {
		return nil, fmt.Errorf("more than %d hosts", MaxWorld)
	}
	return hosts, nil
}

// ranges returns the numbers of "01-03,7" as they are written, at most `most`.
func ranges(text string, most int) ([]string, error) {
	var values []string
	for _, r := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		first, ferr := strconv.ParseUint(from, 10, 32)
		last, lerr := strconv.ParseUint(to, 10, 32)
		if ferr != nil || lerr != nil || last < first {
			return nil, fmt.Errorf("%q is not a number or a range of numbers", words.Clip(r, maxShown))
		}
		if last-first >= uint64(most) || len(values)+int(last-first)+1 > most {
			return nil, fmt.Errorf("more than %d hosts", MaxWorld)
		}
		for n := first; n <= last; n++ {
			values = append(values, fmt.Sprintf("%0*d", min(len(from), 253), n))
		}
	}
	return values, nil
}

// tasksOf returns the number of tasks on a node (from 0) in SLURM's notation: "2(x3),1" is three nodes of two tasks,
// then one of one.
func tasksOf(text string, node int) (int, error) {
	if len(text) > maxNodelist {
		return 0, fmt.Errorf("%d bytes are too many", len(text))
	}
	for part := range strings.SplitSeq(text, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		n, err := strconv.ParseUint(count, 10, 17)
		k := uint64(1)
		if err == nil && repeated {
			times, closed := strings.CutSuffix(times, ")")
			if k, err = strconv.ParseUint(times, 10, 17); !closed {
				err = errors.New("a bracket is not closed")
			}
		}
		if err != nil || n == 0 || n > MaxWorld || k == 0 {
			return 0, fmt.Errorf("%q is not a number of tasks such as 2 or 2(x3)", words.Clip(part, maxShown))
		}
		if node < int(k) {
			return int(n), nil
		}
		node -= int(k)
	}
	return 0, fmt.Errorf("it has fewer nodes than SLURM_NODEID says")
}
