package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/Azure/go-amqp"
)

// secured makes a scheme and options of what a `connect` says of TLS and SASL.
func secured(told command) (string, *amqp.ConnOptions, error) {
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}
	switch told.Mechanism {
	case "PLAIN":
		options.SASLType = amqp.SASLTypePlain(told.User, told.Password)
	case "EXTERNAL":
		options.SASLType = amqp.SASLTypeExternal("")
	}
	if told.CA == "" {
		return "amqp", options, nil
	}
	authority, err := os.ReadFile(told.CA)
	if err != nil {
		return "", nil, err
	}
	options.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	options.TLSConfig.RootCAs.AppendCertsFromPEM(authority)
	if told.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(told.Certificate, told.Key)
		if err != nil {
			return "", nil, err
		}
		options.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return "amqps", options, nil
}
