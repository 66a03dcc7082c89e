package roles

import (
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v4"
	"github.com/peterbourgon/ff/v4/ffval"
)

// Flags are the flags of all roles. --kafka-prefix is also the variable LIENSTREAM_KAFKA_PREFIX and the line
// kafka-prefix of the YAML file.
type Flags struct {
	set     *ff.FlagSet
	names   []string
	secrets []string        // whose values are masked wherever they are shown
	given   map[string]bool // on the command line
}

const variablePrefix = "LIENSTREAM"

func newFlags() *Flags { return &Flags{set: ff.NewFlagSet("lienstream")} }

// bind registers a flag. Its default is what it is bound to.
func bind[T ffval.ValueType](f *Flags, to *T, name, usage string) {
	config := ff.FlagConfig{LongName: name, Usage: usage, Value: ffval.NewValueDefault(to, *to)}
	if b, ok := any(*to).(bool); ok && !b {
		config.NoDefault = true
	}
	f.add(config)
}

// bindList registers a flag of several values, comma-separated.
func bindList(f *Flags, to *[]string, name, usage string) {
	f.add(ff.FlagConfig{LongName: name, Usage: usage, Value: (*list)(to), NoDefault: len(*to) == 0, Placeholder: "LIST"})
}

// noteGiven finds out which flags the command line sets: a parser is told nothing else.
func (f *Flags) noteGiven(args []string) {
	f.given = map[string]bool{}
	g := newProgram()
	alone := g.flags()
	if g.commands(Environment{}, alone).Parse(args) != nil {
		return // the real parser says what is wrong
	}
	for _, name := range alone.names {
		flag, _ := alone.set.GetFlag(name)
		f.given[name] = flag.IsSet()
	}
}

// secret marks a flag whose value may hold a key or a password.
func (f *Flags) secret(name string) { f.secrets = append(f.secrets, name) }

func (f *Flags) add(config ff.FlagConfig) {
	if _, err := f.set.AddFlag(config); err != nil {
		panic(err) // two flags of one name
	}
	f.names = append(f.names, config.LongName)
}

// list is a flag.Value that replaces what it held.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	*l = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	return nil
}

// Flag is a flag as it stands.
type Flag struct {
	Name, Usage    string
	Default, Value string // masked where it may hold a secret
	Source         string // default, file, or which variable or flag
}

// Listing lists every flag with its default, sorted by name.
func Listing() []Flag { return newProgram().flags().listing() }

// listing tells of each flag what holds and where that came from.
func (f *Flags) listing() []Flag {
	var all []Flag
	for _, name := range slices.Sorted(slices.Values(f.names)) {
		flag, _ := f.set.GetFlag(name)
		is := Flag{Name: name, Usage: flag.GetUsage(), Default: flag.GetDefault(), Value: flag.GetValue(), Source: "default"}
		switch {
		case f.given[name]:
			is.Source = "flag --" + name
		case flag.IsSet() && os.Getenv(variable(name)) != "":
			is.Source = "variable " + variable(name)
		case flag.IsSet():
			is.Source = "file"
		}
		if slices.Contains(f.secrets, name) {
			is.Value = masked(is.Value)
		}
		all = append(all, is)
	}
	return all
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return variablePrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// masked keeps the scheme and the host of each URL of a list: paths and users hold keys.
func masked(value string) string {
	if value == "" {
		return ""
	}
	var all []string
	for v := range strings.SplitSeq(value, ",") {
		u, err := url.Parse(strings.TrimSpace(v))
		switch {
		case err != nil || u.Host == "":
			v = "***"
		case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			v = u.Scheme + "://" + u.Host + "/***"
		}
		all = append(all, v)
	}
	return strings.Join(all, ",")
}
