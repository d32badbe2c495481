module my-operator

go 1.24
