// Who is who in the cluster: one authority of its own, a certificate for each component, a token for the admin, and
// the kubeconfig files that hold them. All of it is made once for a cluster and goes with its folder.
package onenode

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// identity is a certificate to be: for clients its name and group are who the apiserver takes it for.
type identity struct {
	file, name, group string
	addresses         []string
	names             []string
}

var identities = []identity{
	{file: "apiserver", name: "kube-apiserver",
		addresses: []string{"127.0.0.1", "::1", nodeAddress, serviceAddress},
		names: []string{"localhost", NodeName, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"}},
	{file: "apiserver-to-kubelet", name: "kube-apiserver-kubelet-client", group: "system:masters"},
	{file: "controller-manager", name: "system:kube-controller-manager"},
	{file: "scheduler", name: "system:kube-scheduler"},
	{file: "kubelet", name: "system:node:" + NodeName, group: "system:nodes"},
	{file: "kubelet-serving", name: NodeName, addresses: []string{nodeAddress}, names: []string{NodeName}},
}

func (c *Cluster) certificate(name string) string { return c.path("pki", name+".crt") }
func (c *Cluster) key(name string) string         { return c.path("pki", name+".key") }
func (c *Cluster) tokenFile() string              { return c.path("pki", "tokens.csv") }

// makeCredentials does nothing where they are there already: pods that run hold tokens of the old key.
func (c *Cluster) makeCredentials() error {
	if _, err := os.Stat(c.kubeconfig()); err == nil {
		return nil
	}
	authority, authorityKey, err := c.makeAuthority()
	if err != nil {
		return err
	}
	for number, one := range identities {
		if err := c.issue(one, int64(number)+2, authority, authorityKey); err != nil {
			return fmt.Errorf("certificate of %s: %w", one.name, err)
		}
	}
	if err := c.makeSigner(); err != nil {
		return err
	}
	token := make([]byte, 24)
	if _, err := rand.Read(token); err != nil {
		return err
	}
	secret := hex.EncodeToString(token)
	if err := write(c.tokenFile(), []byte(secret+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}
	for _, component := range []string{"controller-manager", "scheduler", "kubelet"} {
		user := fmt.Sprintf("client-certificate: %s\n    client-key: %s", c.certificate(component), c.key(component))
		if err := c.writeKubeconfig(c.path("pki", component+".kubeconfig"), user); err != nil {
			return err
		}
	}
	// Last, as its presence says that everything before it is there.
	return c.writeKubeconfig(c.kubeconfig(), "token: "+secret)
}

func (c *Cluster) makeAuthority() (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "localpool-cluster"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(2, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	encoded, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	// Parsed again, for the key identifier that the others have to name.
	if authority, err = x509.ParseCertificate(encoded); err != nil {
		return nil, nil, err
	}
	return authority, key, writePEM(c.certificate("ca"), "CERTIFICATE", encoded, 0o644)
}

func (c *Cluster) issue(one identity, serial int64, authority *x509.Certificate, authorityKey crypto.Signer) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	subject := pkix.Name{CommonName: one.name}
	if one.group != "" {
		subject.Organization = []string{one.group}
	}
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      subject,
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:     one.names,
	}
	for _, address := range one.addresses {
		certificate.IPAddresses = append(certificate.IPAddresses, net.ParseIP(address))
		certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	encoded, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), authorityKey)
	if err != nil {
		return err
	}
	if err := c.writeKey(one.file, key); err != nil {
		return err
	}
	return writePEM(c.certificate(one.file), "CERTIFICATE", encoded, 0o644)
}

// makeSigner makes the pair that service account tokens are signed with and checked by.
func (c *Cluster) makeSigner() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := c.writeKey("service-accounts", key); err != nil {
		return err
	}
	return writePEM(c.path("pki", "service-accounts.pub"), "PUBLIC KEY", public, 0o644)
}

func (c *Cluster) writeKey(name string, key *ecdsa.PrivateKey) error {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(c.key(name), "EC PRIVATE KEY", encoded, 0o600)
}

func writePEM(path, kind string, content []byte, mode os.FileMode) error {
	return write(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), mode)
}

func (c *Cluster) writeKubeconfig(path, user string) error {
	authority, err := os.ReadFile(c.certificate("ca"))
	if err != nil {
		return err
	}
	return write(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: localpool
  cluster:
    server: https://127.0.0.1:%d
    certificate-authority-data: %s
users:
- name: me
  user:
    %s
contexts:
- name: localpool
  context:
    cluster: localpool
    user: me
current-context: localpool
`, c.apiserverPort(), base64.StdEncoding.EncodeToString(authority), user), 0o600)
}

// adminToken reads back what makeCredentials wrote.
func (c *Cluster) adminToken() (string, error) {
	content, err := os.ReadFile(c.tokenFile())
	if err != nil {
		return "", err
	}
	token, _, _ := strings.Cut(string(content), ",")
	return token, nil
}
