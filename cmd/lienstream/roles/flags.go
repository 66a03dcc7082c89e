package roles

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v4"
	"github.com/peterbourgon/ff/v4/ffval"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// Flags are the flags of all roles. --kafka-prefix can also be set by the variable LIENSTREAM_KAFKA_PREFIX, or
// by kafka-prefix in the YAML file.
type Flags struct {
	set      *ff.FlagSet
	names    []string
	values   map[string]flag.Value
	secrets  []string        // flags whose values are masked in output
	given    map[string]bool // on the command line
	computed map[string]computed
}

const variablePrefix = "LIENSTREAM"

func newFlags() *Flags {
	return &Flags{set: ff.NewFlagSet("lienstream"), values: map[string]flag.Value{}, computed: map[string]computed{}}
}

// bind registers a flag. Its default is the current value of its target.
func bind[T ffval.ValueType](f *Flags, to *T, name, usage string) {
	config := ff.FlagConfig{LongName: name, Usage: usage, Value: ffval.NewValueDefault(to, *to), Placeholder: placeholder(*to)}
	if b, ok := any(*to).(bool); ok && !b {
		config.NoDefault, config.NoPlaceholder = true, true
	}
	f.add(config)
}

// placeholder is the type of a flag's value, such as DURATION, which --help shows. The flag library would take the first
// words of the usage that are in backquotes, which are commands.
func placeholder(value any) string {
	name := fmt.Sprintf("%T", value)
	return strings.ToUpper(name[strings.LastIndexByte(name, '.')+1:])
}

// bindListen registers the flag of a server's listen address.
func bindListen(f *Flags, c *httpapi.Config, name, usage string) {
	c.ListenName = name
	bind(f, &c.Listen, name, usage)
}

// bindList registers a flag with comma-separated values.
func bindList(f *Flags, to *[]string, name, usage string) {
	f.add(ff.FlagConfig{LongName: name, Usage: usage, Value: (*list)(to), NoDefault: len(*to) == 0, Placeholder: "LIST"})
}

// areSet are the flags that have been set.
func (f *Flags) areSet() map[string]bool {
	all := map[string]bool{}
	for _, name := range f.names {
		all[name] = f.isSet(name)
	}
	return all
}

// secret marks a flag whose value may contain a key or a password even if it is no URL.
func (f *Flags) secret(name string) { f.secrets = append(f.secrets, name) }

func (f *Flags) add(config ff.FlagConfig) {
	if _, err := f.set.AddFlag(config); err != nil {
		panic(err) // two flags have the same name
	}
	f.names = append(f.names, config.LongName)
	f.values[config.LongName] = config.Value
}

// list is a flag.Value: Set replaces the whole list.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	*l = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	return nil
}

// Flag describes a flag and its current value.
type Flag struct {
	Name, Usage    string
	Default, Value string // masked if it may contain a secret
	Source         string // default, file, or the variable or flag that set it; what a default follows from
}

// Listing lists every flag with its default, sorted by name.
func Listing() []Flag { return newProgram().flags().listing() }

// listing returns each flag's value and source.
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
		is.Value = f.computed[name].of(masked(is.Value, slices.Contains(f.secrets, name)))
		is.Source = f.computed[name].source(is.Source)
		all = append(all, is)
	}
	return all
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return variablePrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// masked keeps the scheme and the host of each URL of a list, whatever flag it is of: users, paths and queries may be
// secrets. Of a secret list it masks all else too.
func masked(value string, secret bool) string {
	if value == "" || !secret && !strings.Contains(value, "://") {
		return value
	}
	var all []string
	for v := range strings.SplitSeq(value, ",") {
		u, err := url.Parse(strings.TrimSpace(v))
		switch {
		case err != nil || u.Host == "":
			if secret || err != nil {
				v = "***"
			}
		case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			v = u.Scheme + "://" + u.Host + "/***"
		}
		all = append(all, v)
	}
	return strings.Join(all, ",")
}
