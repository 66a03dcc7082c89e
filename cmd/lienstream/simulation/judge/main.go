// Command judge writes an overlay for `go build` in which every fault of a folder of patches is in the code at once, and the
// one that the environment names is done: a build for all of them. A patch may change functions alone. It must be run in the
// repository's root.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// variable of the environment that names the fault to do.
const variable = "LIENSTREAM_MUTANT"

// judge PATCHES OVERLAY DIR: adds to the overlay file what replaces which source, with copies in DIR.
func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: judge PATCHES OVERLAY DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

func run(patches, overlay, dir string) error {
	all, err := filepath.Glob(filepath.Join(patches, "*.patch"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no patches in %s", patches)
	}
	files := map[string]*file{}
	var errs []error
	for _, p := range all {
		if err := add(files, p, dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var with struct{ Replace map[string]string }
	text, err := os.ReadFile(overlay)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &with); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		named := filepath.Join(filepath.Dir(path), "mutant_named.go")
		for of, text := range map[string]string{
			path:  f.text(),
			named: fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar mutantNamed = os.Getenv(%q)\n", f.parsed.Name.Name, variable),
		} {
			at := filepath.Join(dir, fmt.Sprint(i, "_", filepath.Base(of)))
			if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
				return err
			}
			with.Replace[filepath.Join(root, of)] = at
		}
	}
	if text, err = json.Marshal(with); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600)
}

// file is a source and the faults in it.
type file struct {
	source []byte
	parsed *ast.File
	set    *token.FileSet
	faults map[string][]fault // by function
}

// fault is a function as a patch has it.
type fault struct {
	name string
	text string
}

func parse(source []byte) (*file, error) {
	f := &file{source: source, set: token.NewFileSet(), faults: map[string][]fault{}}
	var err error
	f.parsed, err = parser.ParseFile(f.set, "", source, parser.ParseComments)
	return f, err
}

func (f *file) offset(p token.Pos) int { return f.set.Position(p).Offset }

// functions are the functions by receiver and name, and rest is what is between them.
func (f *file) functions() (all map[string]*ast.FuncDecl, rest string) {
	all = map[string]*ast.FuncDecl{}
	from := 0
	for _, d := range f.parsed.Decls {
		fn, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		key := fn.Name.Name
		if fn.Recv != nil {
			key = string(f.source[f.offset(fn.Recv.List[0].Type.Pos()):f.offset(fn.Recv.List[0].Type.End())]) + "." + key
		}
		all[key] = fn
		rest += string(f.source[from:f.offset(fn.Pos())])
		from = f.offset(fn.End())
	}
	return all, rest + string(f.source[from:])
}

// add adds the functions that a patch changes.
func add(files map[string]*file, patch, dir string) error {
	text, err := os.ReadFile(patch)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(patch), ".patch")
	work := filepath.Join(dir, "work")
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	sources := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		path, is := strings.CutPrefix(strings.TrimSpace(line), "+++ b/")
		if !is {
			continue
		}
		if sources[path], err = os.ReadFile(path); err != nil {
			return err
		}
		at := filepath.Join(work, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(at, sources[path], 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(context.Background(), "patch", "--batch", "--fuzz=0", "-s", "-p1", "-d", work)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for path, source := range sources {
		changed, err := os.ReadFile(filepath.Join(work, path))
		if err != nil {
			return err
		}
		if files[path] == nil {
			if files[path], err = parse(source); err != nil {
				return err
			}
		}
		if err := files[path].differ(name, changed); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// differ adds the functions that differ in a changed source.
func (f *file) differ(name string, changed []byte) error {
	to, err := parse(changed)
	if err != nil {
		return err
	}
	before, rest := f.functions()
	after, restAfter := to.functions()
	if rest != restAfter || len(before) != len(after) {
		return errors.New("the patch changes more than functions")
	}
	for key, fn := range after {
		is, was := string(to.source[to.offset(fn.Pos()):to.offset(fn.End())]), before[key]
		if is == string(f.source[f.offset(was.Pos()):f.offset(was.End())]) {
			continue
		}
		at := to.offset(fn.Name.End()) - to.offset(fn.Pos())
		f.faults[key] = append(f.faults[key], fault{name, is[:at] + suffix(name) + is[at:]})
	}
	return nil
}

func suffix(name string) string { return "_" + strings.ReplaceAll(name, "-", "_") }

// text is the source with all of its faults: a function begins with going on in the one that is named.
func (f *file) text() string {
	functions, _ := f.functions()
	var b strings.Builder
	from := 0
	for _, key := range slices.SortedFunc(maps.Keys(f.faults), func(a, b string) int { return int(functions[a].Pos() - functions[b].Pos()) }) {
		fn := functions[key]
		at := f.offset(fn.Body.Lbrace) + 1
		b.Write(f.source[from:at])
		from = at
		for _, m := range f.faults[key] {
			call := fn.Name.Name + suffix(m.name) + "(" + arguments(fn) + ")"
			if fn.Recv != nil {
				call = fn.Recv.List[0].Names[0].Name + "." + call
			}
			if fn.Type.Results == nil {
				fmt.Fprintf(&b, "\nif mutantNamed == %q { %s; return }\n", m.name, call)
			} else {
				fmt.Fprintf(&b, "\nif mutantNamed == %q { return %s }\n", m.name, call)
			}
		}
	}
	b.Write(f.source[from:])
	for _, key := range slices.Sorted(maps.Keys(f.faults)) {
		for _, m := range f.faults[key] {
			b.WriteString("\n" + m.text + "\n")
		}
	}
	return b.String()
}

// arguments are a function's own parameters, each of which has a name.
func arguments(fn *ast.FuncDecl) string {
	var all []string
	for _, p := range fn.Type.Params.List {
		for _, n := range p.Names {
			if _, variadic := p.Type.(*ast.Ellipsis); variadic {
				all = append(all, n.Name+"...")
				continue
			}
			all = append(all, n.Name)
		}
	}
	return strings.Join(all, ", ")
}
