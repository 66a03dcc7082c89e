package roles

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"text/tabwriter"
)

// write prints every flag's effective value: `lienstream config`.
func (f *Flags) write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "FLAG\tVALUE\tFROM")
	for _, flag := range f.listing() {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", flag.Name, cmp.Or(flag.Value, "-"), flag.Source)
	}
	return table.Flush() // the table keeps the first error
}

// version prints the build information in the binary: `lienstream version`.
func version(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		_, err := fmt.Fprintln(w, "lienstream, built without modules,", runtime.Version())
		return err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	_, err := fmt.Fprintf(w, "lienstream %s, revision %s, modified %s, %s %s/%s\n", cmp.Or(info.Main.Version, "unknown"),
		cmp.Or(settings["vcs.revision"], "unknown"), cmp.Or(settings["vcs.modified"], "unknown"), info.GoVersion, runtime.GOOS, runtime.GOARCH)
	return err
}
