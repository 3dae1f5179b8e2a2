package config

import (
	"net/url"
	"strings"
)

// ShownURL returns the addresses of servers without the passwords that may stand
// in them, for logs and errors.
func ShownURL(servers string) string {
	list := strings.Split(servers, ",")
	for i, server := range list {
		if u, err := url.Parse(strings.TrimSpace(server)); err == nil && u.Host != "" {
			list[i] = u.Redacted()
		} else if at := strings.LastIndex(server, "@"); at >= 0 {
			list[i] = "xxxxx" + server[at:]
		}
	}
	return strings.Join(list, ",")
}
