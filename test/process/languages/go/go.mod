module shops

go 1.24

require fairlead.dev/go v0.0.0

replace fairlead.dev/go => ../../../../packages/go
