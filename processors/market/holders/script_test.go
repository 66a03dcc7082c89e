package holders_test

import (
	"testing"

	"github.com/lienstream/lienstream/processors/market/markettest"
)

func TestScripts(t *testing.T) { markettest.Run(t) }
