// Scrapes an operator's /metrics for a while, as Prometheus does, and answers queries over what it has seen with Prometheus's own engine: what a board would show.
// It has no server and keeps nothing.
//
//	boards -metrics http://127.0.0.1:8080/metrics -for 90s -every 2s [-authority FILE] [-token TOKEN] <queries.json >answers.json
//
// queries.json is a list of {"query": …}; whatever else an entry has is repeated in its answer. An answer adds "error", or "series": the labels of each series
// and its [seconds since the first scrape, value] samples, one for each scrape.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

type series struct {
	Labels  map[string]string `json:"labels"`
	Samples [][2]any          `json:"samples"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "boards:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("metrics", "", "address of /metrics")
	job := flag.String("job", "karpenter", "the label job that Prometheus would add")
	authority := flag.String("authority", "", "PEM file with the certificate authority of the address")
	token := flag.String("token", "", "bearer token")
	length := flag.Duration("for", 90*time.Second, "how long to scrape")
	every := flag.Duration("every", 2*time.Second, "how often to scrape")
	flag.Parse()
	client, err := client(*authority)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodGet, *address, nil)
	if err != nil {
		return err
	}
	if *token != "" {
		request.Header.Set("Authorization", "Bearer "+*token)
	}
	var queries []map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&queries); err != nil {
		return fmt.Errorf("standard input is a list of objects with a query each: %w", err)
	}
	folder, err := os.MkdirTemp("", "boards")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	database, err := tsdb.Open(folder, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer database.Close()

	target := labels.FromStrings("job", *job, "instance", "operator", "cluster", "rehearsal")
	begin := time.Now()
	scrapes, last := 0, begin
	for ; last.Sub(begin) < *length; last = time.Now() {
		if err := scrape(database, client, request, target, last); err != nil {
			return fmt.Errorf("scrape %d of %s: %w", scrapes+1, *address, err)
		}
		scrapes++
		time.Sleep(*every)
	}
	fmt.Fprintf(os.Stderr, "%d scrapes in %s\n", scrapes, last.Sub(begin).Round(time.Second))

	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true})
	for _, query := range queries {
		text, is := query["query"].(string)
		if !is {
			return errors.New("an entry of the list has no query")
		}
		if found, err := answer(engine, database, text, begin, last, *every); err != nil {
			query["error"] = err.Error()
		} else {
			query["series"] = found
		}
	}
	return json.NewEncoder(os.Stdout).Encode(queries)
}

// client trusts the certificate authority of a file, or the machine's.
func client(authority string) (*http.Client, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{}}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", authority)
		}
	}
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}, nil
}

// scrape takes all samples of one answer in at a time; a label of the metric with a name that the target has, too, is kept as exported_NAME, as Prometheus does.
func scrape(database storage.Appendable, client *http.Client, request *http.Request, target labels.Labels, at time.Time) error {
	reply, err := client.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", reply.Status)
	}
	parser, err := textparse.New(body, reply.Header.Get("Content-Type"), "text/plain", false, false, false, labels.NewSymbolTable())
	if parser == nil {
		return err
	}
	appender := database.Appender(context.Background())
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return appender.Commit()
		}
		if err != nil {
			return errors.Join(err, appender.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parser.Series()
		var own labels.Labels
		parser.Labels(&own)
		builder := labels.NewBuilder(own)
		target.Range(func(label labels.Label) {
			if there := own.Get(label.Name); there != "" {
				builder.Set("exported_"+label.Name, there)
			}
			builder.Set(label.Name, label.Value)
		})
		if _, err := appender.Append(0, builder.Labels(), at.UnixMilli(), value); err != nil {
			return errors.Join(err, appender.Rollback())
		}
	}
}

func answer(engine *promql.Engine, database storage.Queryable, text string, begin, end time.Time, every time.Duration) ([]series, error) {
	query, err := engine.NewRangeQuery(context.Background(), database, nil, text, begin, end, every)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	matrix, err := query.Exec(context.Background()).Matrix()
	if err != nil {
		return nil, err
	}
	found := []series{}
	for _, one := range matrix {
		next := series{Labels: one.Metric.Map()}
		for _, point := range one.Floats {
			var value any = point.F
			if math.IsNaN(point.F) || math.IsInf(point.F, 0) {
				value = nil
			}
			next.Samples = append(next.Samples, [2]any{float64(point.T-begin.UnixMilli()) / 1000, value})
		}
		found = append(found, next)
	}
	return found, nil
}
