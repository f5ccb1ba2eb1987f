// go_zip TREE PROXY VERSION: puts the modules of the bindings of a tree, such as git archive makes, into a folder for GOPROXY=file://PROXY:
// what the Go proxy makes of the tags bindings/go/VERSION and bindings/go/otel/VERSION, by the same code.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func publish(tree, proxy, subfolder, version string) error {
	which := module.Version{Path: "github.com/copyrpc/copyrpc/" + subfolder, Version: version}
	if err := module.Check(which.Path, which.Version); err != nil {
		return err
	}
	place := filepath.Join(proxy, which.Path, "@v")
	if err := os.MkdirAll(place, 0o777); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(place, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := zip.CreateFromDir(archive, which, filepath.Join(tree, subfolder)); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(tree, subfolder, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": mod, version + ".info": info} {
		if err := os.WriteFile(filepath.Join(place, name), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	for _, subfolder := range []string{"bindings/go", "bindings/go/otel"} {
		if err := publish(os.Args[1], os.Args[2], subfolder, os.Args[3]); err != nil {
			log.Fatal(err)
		}
	}
}
