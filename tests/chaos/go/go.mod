module github.com/copyrpc/copyrpc/tests/chaos/go

go 1.21

require github.com/copyrpc/copyrpc/bindings/go v0.0.0

replace github.com/copyrpc/copyrpc/bindings/go => ../../../bindings/go
