package main

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func notFound(id string) error {
	return status.Errorf(codes.NotFound, "%s does not exist", id)
}
