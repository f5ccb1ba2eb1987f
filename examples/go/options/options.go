// Package options has what the examples share on the command line: -help and -version.
package options

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	copyrpc "github.com/copyrpc/copyrpc/bindings/go"
)

// Parse is flag.Parse for a program with these arguments. It ends the program if it was asked for its version.
func Parse(arguments string) {
	name := filepath.Base(os.Args[0])
	flag.BoolFunc("version", "print the version of the library", func(string) error {
		fmt.Println(name, copyrpc.Version())
		os.Exit(0)
		return nil
	})
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: %s [OPTIONS] %s\n", name, arguments)
		flag.PrintDefaults()
	}
	flag.Parse()
}
