import { readFileSync } from 'node:fs';
import { RecordingMeter } from '@cloudless/base/testing';
import { publishMetrics } from './proxy-metrics.js';

const PAGE = new URL('../../../../docs/operating/monitoring.md', import.meta.url);

it('the metrics of a proxy are those of its table in docs/operating/monitoring.md', () => {
  const meter = new RecordingMeter();
  publishMetrics(meter, {
    ports: () => [],
    links: () => [],
    handshakes: () => ({ pending: 0, failed: 0 }),
    openConnections: () => 0,
  });
  const page = readFileSync(PAGE, 'utf8');
  const table = page.slice(page.indexOf('| metric of a network proxy'));
  const rows = table.slice(0, table.indexOf('\n\n'));
  const documented = [
    ...rows.matchAll(/^\| `(cloudless_network_\w+)` +\| (\w+) +\| ([^|]*)\|/gm),
  ].map(([, name, , labels = '']) => [
    name,
    [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label),
  ]);
  const published = [...meter.specs.values()].map(({ name, labels = [] }) => [name, [...labels]]);
  const ofRegistry = [
    ['cloudless_network_metrics_collect_failures_total', []],
    ['cloudless_network_metrics_dropped_total', ['metric']],
  ];
  expect(documented).toEqual([...published, ...ofRegistry].sort());
});
