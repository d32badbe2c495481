module fairlead.dev/go

go 1.24
