import { readFileSync } from 'node:fs';
import { RecordingMeter } from '@cloudless/base/testing';
import { createIngressMetrics } from './ingress-metrics.js';

const PAGE = new URL('../../../../docs/operating/monitoring.md', import.meta.url);

it('the metrics of HTTP ingress are those of the table in docs/operating/monitoring.md', () => {
  const meter = new RecordingMeter();
  createIngressMetrics(meter);
  const page = readFileSync(PAGE, 'utf8');
  const table = page.slice(page.indexOf('| metric of HTTP ingress'));
  const documented = [
    ...table
      .slice(0, table.indexOf('\n\n'))
      .matchAll(/^\| `(cloudless_network_\w+)` +\| (\w+) +\| ([^|]*)\|/gm),
  ].map(([, name, , labels = '']) => [
    name,
    [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label),
  ]);
  const published = [...meter.specs.values()].map(({ name, labels = [] }) => [name, [...labels]]);
  expect(documented).toEqual(published.sort());
});
