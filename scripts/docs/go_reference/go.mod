module github.com/copyrpc/copyrpc/scripts/docs/go_reference

go 1.21
