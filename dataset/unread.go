package dataset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tierlora/tierlora/internal/words"
)

// Unread is a key of rows that nothing reads.
type Unread struct {
	Key  string `json:"key"`  // Key is the key, truncated to maxUnreadKey bytes.
	Rows int    `json:"rows"` // Rows counts the rows in which the key has a value that is neither null nor empty.
	// Advice says how the key can be read; "" = no advice.
	Advice string `json:"advice,omitempty"`
}

// Bounds of the unread keys that a report keeps.
const (
	maxUnread    = 64
	maxUnreadKey = 60 // bytes
)

// contextKeys are keys that usually hold the context of an answer. If they are not read, the run trains on something
// else than the rows mean, so it warns.
var contextKeys = []string{
	"system", "system_prompt", "history", "context", "contexts", "document", "documents", "passage", "passages",
	"input",
	"instruction", "question",
	"tools", "functions", "messages", "conversations", "conversation",
}

// bookkeepingKeys are keys of bookkeeping values: origin, name or measurements of a row.
var bookkeepingKeys = strings.Fields(`_id author category class created created_at custom_id data_source dataset dataset_name date difficulty domain
		end file filename generator guid hash id idx index intent key lang language level license line md5 meta metadata model model_name name no
		num number origin position quality rank rating row score sha sha256 size source split src start status subject subset tag tags task
		task_name task_type time timestamp title topic type uid unnamed updated_at url user uuid version`)

// bookkeeping reports whether a key is one of bookkeepingKeys, an identifier, a count, or an index that a program wrote
// (pandas: "", "Unnamed: 0", "__index_level_0__").
func bookkeeping(key string) bool {
	key = strings.ToLower(strings.TrimSpace(key))
	for _, ending := range []string{"_id", "_ids", "_idx", "_index", "_hash", "_url", "_date", "_count", "_score",
		"_tokens", "_length"} {
		if strings.HasSuffix(key, ending) {
			return true
		}
	}
	for _, beginning := range []string{"num_", "n_", "unnamed:", "__index_level_"} {
		if strings.HasPrefix(key, beginning) {
			return true
		}
	}
	return key == "" || slices.Contains(bookkeepingKeys, key)
}

// fields returns a row with the roles of the file's format. If the row lacks the key that the file's first row had for
// an optional field, another key of that field is used.
func (s *loading) fields(o Object) Fields {
	keys := s.keys
	for _, r := range s.format.Roles {
		bound := s.keys[r.Name]
		if _, mapped := s.cfg.Fields[r.Name]; mapped || !r.Optional || len(r.Keys) < 2 || o.filled(bound) {
			continue
		}
		for _, key := range r.Keys {
			if key != bound && o.filled(key) {
				keys = maps.Clone(keys)
				keys[r.Name] = key
				break
			}
		}
	}
	return Fields{row: o, keys: keys}
}

// filled reports whether a key has a value that is neither null nor empty.
func (o Object) filled(key string) bool {
	v, ok := o.lookup(key)
	return ok && !empty(v)
}

// empty reports whether a value is null or an empty string, list or object.
func empty(value []byte) bool {
	switch string(value) {
	case "null", `""`, "[]", "{}":
		return true
	}
	if k := kindOf(value); k == "a list" || k == "an object" {
		i := skipSpace(value, skipSpace(value, 0)+1)
		return value[i] == ']' || value[i] == '}'
	}
	return false
}

// unread lists the keys of a row that nothing reads, in order. unused are keys of fields that another field took
// precedence over.
func (s *loading) unread(f Fields, unused []string) []string {
	keys := unused
	for i, key := range f.row.keys {
		if empty(f.row.values[i]) {
			continue
		}
		of := func(field string) bool {
			return field == key || strings.HasPrefix(field, key) && field[len(key)] == '.'
		}
		if slices.ContainsFunc(s.reads, of) {
			continue
		}
		other := false // a key that only this row needs
		for _, r := range s.format.Roles {
			other = other || f.keys[r.Name] == key
		}
		if !other {
			keys = append(keys, words.Clip(key, maxUnreadKey))
		}
	}
	return keys
}

// advise records how the unread keys so far can be read.
func (s *loading) advise() {
	for i, u := range s.report.Unread {
		if u.Advice == "" {
			s.report.Unread[i].Advice = s.format.advice(s.report.Format, u.Key, s.keys)
		}
	}
}

// advice says how a key that the format does not read can be read; "" = no advice. keys are the keys of the format's
// fields.
func (f Format) advice(name, key string, keys map[string]string) string {
	if f.AsChat == nil {
		return ""
	}
	if name == "completion" && key == "context" {
		return fmt.Sprintf("set dataset.format: alpaca and dataset.fields: {instruction: %s, input: context, output: "+
			"%s} to train it behind the question",
			yamlKey(keys["prompt"]), yamlKey(keys["completion"]))
	}
	var more []string
	found := false
	for _, r := range f.asConversations().Roles {
		if !f.hasRoles([]string{r.Name}) {
			more = append(more, r.Name)
			found = found || slices.Contains(r.Keys, key)
		}
	}
	if f.Chat || !found {
		return ""
	}
	return "set dataset.as_chat: yes to read " + strings.Join(more, " and ")
}

func (r *Report) countUnread(u Unread) {
	i := slices.IndexFunc(r.Unread, func(known Unread) bool { return known.Key == u.Key })
	switch {
	case i >= 0:
		r.Unread[i].Rows += u.Rows
	case len(r.Unread) < maxUnread:
		r.Unread = append(r.Unread, u)
	default:
		r.UnreadMore += u.Rows
	}
}

// addUnread adds the unread keys of another report.
func (r *Report) addUnread(o *Report) {
	for _, u := range o.Unread {
		r.countUnread(u)
	}
	r.UnreadMore += o.UnreadMore
}

// KeysNotRead lists the keys of rows that nothing reads, with the number of rows and advice: "context in 12 rows,
// functions in 2 rows; bookkeeping: id, source". It is "" if every key is read.
func (r *Report) KeysNotRead() string {
	var keys, aside, advice []string
	for _, u := range r.Unread {
		if bookkeeping(u.Key) {
			aside = append(aside, keyText(u.Key))
			continue
		}
		keys = append(keys, fmt.Sprintf("%s in %s", keyText(u.Key), words.Counted(u.Rows, "row")))
		if u.Advice != "" && !slices.Contains(advice, u.Advice) {
			advice = append(advice, u.Advice)
		}
	}
	if r.UnreadMore > 0 {
		keys = append(keys, "and others")
	}
	text := strings.Join(keys, ", ")
	if aside != nil {
		text = strings.TrimPrefix(text+"; bookkeeping: "+strings.Join(aside, ", "), "; ")
	}
	if advice != nil {
		text += "; " + strings.Join(advice, "; ")
	}
	return text
}

// unreadWarning warns about unread keys that usually hold the context of an answer; "" = there are none.
func (r *Report) unreadWarning() string {
	for _, u := range r.Unread {
		if slices.Contains(contextKeys, strings.ToLower(u.Key)) {
			return "keys not read: " + r.KeysNotRead()
		}
	}
	return ""
}

// keyText returns a key of a file as a report shows it.
func keyText(key string) string {
	plain := func(c rune) bool {
		return unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("_-.:/ ", c)
	}
	if key != "" && strings.TrimSpace(key) == key &&
		!strings.ContainsFunc(key, func(c rune) bool { return !plain(c) }) {
		return key
	}
	return strconv.Quote(key)
}
