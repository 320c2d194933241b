package sanity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// apiserver is a kube-apiserver with an etcd of its own, for nobody else, and a client of it. Nothing of Kubernetes runs
// beside them: no controller, no scheduler, no kubelet. Whoever has its token may do everything.
type apiserver struct {
	lab        lab
	processes  []*process
	url, token string
	client     *http.Client
}

// Who calls the API server. All may do everything, but it knows them apart.
const (
	asTest       = "test"
	asNode       = "node"
	asController = "controller"
)

// kubeconfig names the file by which a process is one of them.
func (a *apiserver) kubeconfig(user string) string { return a.lab.path("kubeconfig-" + user) }

// auditPolicy has each call of the driver's two processes told, and nobody else's.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [node, controller]}
- {level: None}
`

// startAPIServer starts both out of the one program of the cluster.
func startAPIServer(t testing.TB, program string) *apiserver {
	t.Helper()
	l := newLab(t)
	port, tokens := freePort(t), map[string]string{asTest: rand.Text(), asNode: rand.Text(), asController: rand.Text()}
	var file strings.Builder
	for user, token := range tokens {
		fmt.Fprintf(&file, "%s,%s,%[2]s,system:masters\n", token, user)
	}
	l.write(t, "tokens.csv", file.String())
	l.write(t, "audit.yaml", auditPolicy)
	signer, public := serviceAccountKeys(t)
	l.write(t, "service-accounts.key", signer)
	l.write(t, "service-accounts.pub", public)

	etcd, nobody := "unix://"+l.path("etcd.sock"), "http://localhost:2380"
	etcdProcess := l.run(t, "etcd", exec.Command(program, "etcd", "--name=sanity", "--data-dir="+l.path("etcd"),
		"--listen-client-urls="+etcd, "--advertise-client-urls="+nobody,
		// It has no peers, but insists on addresses that they could call.
		"--listen-peer-urls="+etcd+"-peer", "--initial-advertise-peer-urls="+nobody, "--initial-cluster=sanity="+nobody,
		"--unsafe-no-fsync", "--log-level=warn"))
	etcdProcess.until(t, time.Minute, "its socket", func() error {
		conn, err := net.Dial("unix", l.path("etcd.sock"))
		if err == nil {
			conn.Close()
		}
		return err
	})

	server := l.run(t, "kube-apiserver", exec.Command(program, "kube-apiserver", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port), "--cert-dir="+l.path("certificates"), "--etcd-servers="+etcd,
		// From a range that leads nowhere. Nobody connects to it, but the API server needs an address.
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none",
		"--token-auth-file="+l.path("tokens.csv"), "--authorization-mode=AlwaysAllow",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+l.path("service-accounts.pub"),
		"--service-account-signing-key-file="+l.path("service-accounts.key"), "--service-cluster-ip-range=192.0.2.0/24",
		"--audit-policy-file="+l.path("audit.yaml"), "--audit-log-path="+l.path("audit.log"), "--profiling=false"))
	a := &apiserver{
		lab: l, processes: []*process{etcdProcess, server},
		url: fmt.Sprintf("https://127.0.0.1:%d", port), token: tokens[asTest],
	}
	// It makes its certificate itself, and the authority behind it, which stands in the same file.
	var authority []byte
	server.until(t, 2*time.Minute, "/readyz", func() (err error) {
		if authority, err = os.ReadFile(l.path("certificates/apiserver.crt")); err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(authority)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
		a.client = &http.Client{Timeout: 30 * time.Second, Transport: transport}
		if _, err = a.call(t.Context(), http.MethodGet, "/readyz", "", nil); err != nil {
			transport.CloseIdleConnections()
		}
		return err
	})
	for user, token := range tokens {
		l.write(t, filepath.Base(a.kubeconfig(user)), fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: sanity, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: sanity, user: {token: %s}}]
contexts: [{name: sanity, context: {cluster: sanity, user: sanity}}]
current-context: sanity
`, a.url, base64.StdEncoding.EncodeToString(authority), token))
	}
	return a
}

// refusal is an answer that is no success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("the API server answers %d: %s", r.code, r.text) }

// call asks the API server; a body is YAML.
func (a *apiserver) call(ctx context.Context, method, path, body string, into any) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	if body != "" {
		request.Header.Set("Content-Type", "application/yaml")
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = &refusal{answer.StatusCode, string(bytes.TrimSpace(text))}
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	return text, wrap(method+" "+path, err)
}

// create makes an object from YAML.
func (a *apiserver) create(t testing.TB, path, object string) {
	t.Helper()
	if _, err := a.call(t.Context(), http.MethodPost, path, object, nil); err != nil {
		t.Fatal(err)
	}
}

// remove deletes an object at the end of a test, and waits until nothing holds it any more.
func (a *apiserver) remove(t testing.TB, path string) {
	t.Helper()
	ctx := context.Background() // that of the test is over
	_, err := a.call(ctx, http.MethodDelete, path, "", nil)
	var refused *refusal
	gone := err == nil && eventually(time.Minute, func() bool {
		_, err = a.call(ctx, http.MethodGet, path, "", nil)
		return errors.As(err, &refused) && refused.code == http.StatusNotFound
	})
	if !gone {
		t.Errorf("%s cannot be deleted: %v", path, err)
	}
}

func (l lab) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// freePort names a port of the loopback address that nobody listens on just now.
func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// serviceAccountKeys makes what tokens are signed with and checked by. None is ever asked for; the API server does not
// start without.
func serviceAccountKeys(t testing.TB) (signer, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err1 := x509.MarshalECPrivateKey(key)
	other, err2 := x509.MarshalPKIXPublicKey(key.Public())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return encode("EC PRIVATE KEY", private), encode("PUBLIC KEY", other)
}
