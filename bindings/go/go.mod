module github.com/copyrpc/copyrpc/bindings/go

go 1.21
