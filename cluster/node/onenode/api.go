// The few questions that we have for the apiserver ourselves, as the admin.
package onenode

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

type pod struct {
	Metadata struct {
		Name, Namespace string
		OwnerReferences []struct{ Kind string }
	}
}

func (p pod) ofDaemonSet() bool {
	for _, owner := range p.Metadata.OwnerReferences {
		if owner.Kind == "DaemonSet" {
			return true
		}
	}
	return false
}

func (p pod) path() string {
	return "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + p.Metadata.Name
}

// ask sends one request; `into` may be nil.
func (c *Cluster) ask(ctx context.Context, method, path string, body string, into any) error {
	authority, err := os.ReadFile(c.certificate("ca"))
	if err != nil {
		return err
	}
	token, err := c.adminToken()
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true},
	}
	address := fmt.Sprintf("https://127.0.0.1:%d%s", c.apiserverPort(), path)
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the apiserver answers %s to %s %s: %s", answer.Status, method, path, bytes.TrimSpace(content[:min(len(content), 300)]))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(content, into)
}

func (c *Cluster) nodeReady(ctx context.Context) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := c.ask(ctx, http.MethodGet, "/api/v1/nodes/"+NodeName, "", &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			if condition.Status == "True" {
				return nil
			}
			return fmt.Errorf("the node is not ready: %s: %s", condition.Reason, condition.Message)
		}
	}
	return fmt.Errorf("the node has not said yet whether it is ready")
}

func (c *Cluster) pods(ctx context.Context) ([]pod, error) {
	var list struct{ Items []pod }
	err := c.ask(ctx, http.MethodGet, "/api/v1/pods", "", &list)
	return list.Items, err
}
