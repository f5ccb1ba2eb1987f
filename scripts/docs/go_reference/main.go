// go_reference FOLDER IMPORT_PATH: prints the reference of the Go package in the folder as Markdown for the site: what `go doc -all` says, and the
// examples. It reads the sources, and compiles nothing.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"strings"
)

type writer struct {
	files   *token.FileSet
	pkg     *doc.Package
	anchors map[string]string // of each exported name: "Endpoint.Call"
	out     bytes.Buffer
}

// anchor is what the site, like GitHub, makes of a heading.
func anchor(heading string) string {
	kept := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(heading))
	return "#" + kept
}

func function(f *doc.Func) string {
	if f.Recv == "" {
		return "func " + f.Name
	}
	return "func " + strings.TrimPrefix(f.Recv, "*") + " " + f.Name
}

func (w *writer) values(values []*doc.Value, heading string) {
	for _, value := range values {
		for _, name := range value.Names {
			w.anchors[name] = anchor(heading)
		}
	}
}

func (w *writer) learn() {
	w.values(w.pkg.Consts, "Constants")
	w.values(w.pkg.Vars, "Variables")
	for _, f := range w.pkg.Funcs {
		w.anchors[f.Name] = anchor(function(f))
	}
	for _, t := range w.pkg.Types {
		heading := "type " + t.Name
		w.anchors[t.Name] = anchor(heading)
		w.values(t.Consts, heading)
		w.values(t.Vars, heading)
		for _, f := range t.Funcs {
			w.anchors[f.Name] = anchor(function(f))
		}
		for _, f := range t.Methods {
			w.anchors[t.Name+"."+f.Name] = anchor(function(f))
		}
	}
}

func (w *writer) text(text string) {
	printer := w.pkg.Printer()
	printer.HeadingLevel = 4
	printer.HeadingID = func(*comment.Heading) string { return "" }
	printer.DocLinkURL = func(link *comment.DocLink) string {
		name := link.Name
		if link.Recv != "" {
			name = strings.TrimPrefix(link.Recv, "*") + "." + name
		}
		if link.ImportPath != "" {
			return link.DefaultURL("https://pkg.go.dev")
		}
		if to, found := w.anchors[name]; found {
			return to
		}
		return w.anchors[link.Recv]
	}
	markdown := printer.Markdown(w.pkg.Parser().Parse(text))
	w.out.Write(bytes.ReplaceAll(markdown, []byte("\\`"), []byte("`"))) // what our comments have in backquotes is code
	w.out.WriteString("\n")
}

func (w *writer) code(node any) {
	var code bytes.Buffer
	if err := format.Node(&code, w.files, node); err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(&w.out, "```go\n%s\n```\n\n", strings.TrimSpace(code.String()))
}

func (w *writer) group(values []*doc.Value) {
	for _, value := range values {
		w.code(value.Decl)
		w.text(value.Doc)
	}
}

func (w *writer) examples(examples []*doc.Example) {
	for _, example := range examples {
		var code bytes.Buffer
		if err := format.Node(&code, w.files, example.Code); err != nil {
			log.Fatal(err)
		}
		body := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(code.String()), "{"), "}")
		body = strings.Trim(strings.ReplaceAll(body, "\n\t", "\n"), "\n")
		w.out.WriteString("An example:\n\n")
		w.text(example.Doc)
		fmt.Fprintf(&w.out, "```go\n%s\n```\n\n", body)
	}
}

func (w *writer) functions(functions []*doc.Func, level string) {
	for _, f := range functions {
		fmt.Fprintf(&w.out, "%s %s\n\n", level, function(f))
		f.Decl.Body, f.Decl.Doc = nil, nil
		w.code(f.Decl)
		w.text(f.Doc)
		w.examples(f.Examples)
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go_reference FOLDER IMPORT_PATH")
	}
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "*.go"))
	if err != nil || len(paths) == 0 {
		log.Fatal("there are no sources in ", os.Args[1])
	}
	w := &writer{files: token.NewFileSet(), anchors: map[string]string{}}
	var sources []*ast.File
	for _, path := range paths {
		source, err := parser.ParseFile(w.files, path, nil, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		if !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(source.Name.Name, "_test") {
			sources = append(sources, source)
		}
	}
	if w.pkg, err = doc.NewFromFiles(w.files, sources, os.Args[2]); err != nil {
		log.Fatal(err)
	}
	w.learn()
	fmt.Fprintf(&w.out, "# Go: the package %s\n\n```go\nimport %q\n```\n\n", w.pkg.Name, os.Args[2])
	w.text(w.pkg.Doc)
	w.examples(w.pkg.Examples)
	fmt.Fprint(&w.out, "## Constants\n\n")
	w.group(w.pkg.Consts)
	fmt.Fprint(&w.out, "## Variables\n\n")
	w.group(w.pkg.Vars)
	fmt.Fprint(&w.out, "## Functions\n\n")
	w.functions(w.pkg.Funcs, "###")
	fmt.Fprint(&w.out, "## Types\n\n")
	for _, t := range w.pkg.Types {
		fmt.Fprintf(&w.out, "### type %s\n\n", t.Name)
		w.code(t.Decl)
		w.text(t.Doc)
		w.group(t.Consts)
		w.group(t.Vars)
		w.examples(t.Examples)
		w.functions(t.Funcs, "####")
		w.functions(t.Methods, "####")
	}
	os.Stdout.Write(w.out.Bytes())
}
