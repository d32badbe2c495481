package main

import (
	"testing"

	fairlead "fairlead.dev/go"
	"fairlead.dev/go/fairleadtest"
)

func shop(does string) fairlead.Object {
	return fairlead.Object{"object": fairlead.Object{"metadata": fairlead.Object{"name": "a"}, "spec": fairlead.Object{"does": does}}}
}

func TestShops(t *testing.T) {
	fairleadtest.Given(t, shops, shop("opens")).Returns(fairlead.Object{"status": fairlead.Object{"phase": "OPEN"}})
	fairleadtest.Given(t, shops, shop("terminal")).Fails("too small")
}

func TestThatDoesNotHold(t *testing.T) {
	fairleadtest.Given(t, shops, shop("opens")).Returns(fairlead.Object{"status": fairlead.Object{"phase": "SHUT"}})
}
