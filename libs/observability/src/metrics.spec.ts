import { createMetrics } from './index.js';
import { MAX_SERIES } from './metrics.js';

describe('createMetrics', () => {
  it('exposes the metrics that the README shows', async () => {
    const metrics = createMetrics();
    const commits = metrics.counter({
      name: 'cloudless_commits_total',
      help: 'Commits.',
      labels: ['result'],
    });
    commits.add(2, { result: 'done' });
    metrics.gauge({ name: 'cloudless_nodes', help: 'Nodes.' }).set(3);
    metrics
      .histogram({ name: 'cloudless_pass_seconds', help: 'Passes.', buckets: [0.1, 1] })
      .observe(0.5);
    const text = await metrics.expose();
    expect(text).toContain('cloudless_commits_total{result="done"} 2\n');
    expect(text).toContain('cloudless_nodes 3\n');
    expect(text).toContain(
      'cloudless_pass_seconds_bucket{le="0.1"} 0\ncloudless_pass_seconds_bucket{le="1"} 1\n',
    );
  });

  it('uses a registry of its own, and returns the same metric for the same name', async () => {
    const [one, other] = [createMetrics(), createMetrics()];
    const spec = { name: 'cloudless_x_total', help: 'X.' };
    one.counter(spec).add();
    one.counter(spec).add();
    other.counter(spec).add();
    expect(await one.expose()).toContain('cloudless_x_total 2\n');
    expect(await other.expose()).toContain('cloudless_x_total 1\n');
  });

  it('has no name in common with the metrics of another process on the same page', async () => {
    const agent = createMetrics();
    const proxy = createMetrics({ selfPrefix: 'cloudless_network_metrics' });
    proxy.counter({ name: 'cloudless_network_x_total', help: 'X.' }).add();
    const page = `${await agent.expose()}${await proxy.expose()}`;
    const names = [...page.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name);
    expect(names).toHaveLength(5);
    expect(new Set(names).size).toBe(names.length);
  });

  it('throws for a name that another kind has, and for a counter without _total', () => {
    const metrics = createMetrics();
    metrics.counter({ name: 'cloudless_x_total', help: 'X.' });
    expect(() => metrics.gauge({ name: 'cloudless_x_total', help: 'X.' })).toThrow(
      'already been registered',
    );
    expect(() => metrics.counter({ name: 'cloudless_x', help: 'X.' })).toThrow('ends in _total');
  });

  it('limits the label sets of a metric, counts dropped samples, and frees the place of a removed label set', async () => {
    const metrics = createMetrics();
    const gauge = metrics.gauge({ name: 'cloudless_g', help: 'G.', labels: ['id'] });
    for (let id = 0; id <= MAX_SERIES; id += 1) gauge.set(1, { id: `n${id}` });
    expect(await metrics.expose()).not.toContain(`n${MAX_SERIES}"`);
    expect(await metrics.expose()).toContain(
      'cloudless_metrics_dropped_total{metric="cloudless_g"} 1\n',
    );
    gauge.remove({ id: 'n0' });
    gauge.set(5, { id: 'late' });
    expect(await metrics.expose()).toContain('cloudless_g{id="late"} 5\n');
  });

  it('restarts a counter from 0 after its label set was removed, and frees the place of the label set', async () => {
    const metrics = createMetrics();
    const counter = metrics.counter({ name: 'cloudless_c_total', help: 'C.', labels: ['id'] });
    for (let id = 0; id < MAX_SERIES; id += 1) counter.add(3, { id: `n${id}` });
    counter.remove({ id: 'n0' });
    expect(await metrics.expose()).not.toContain('id="n0"');
    counter.add(2, { id: 'n0' });
    expect(await metrics.expose()).toContain('cloudless_c_total{id="n0"} 2\n');
    expect(await metrics.expose()).not.toContain('cloudless_metrics_dropped_total{');
  });

  it('exposes everything that was added to a counter, once, whatever the labels', async () => {
    const metrics = createMetrics();
    const counter = metrics.counter({ name: 'cloudless_c_total', help: 'C.', labels: ['a', 'b'] });
    for (let round = 0; round < 3; round += 1) {
      counter.add(2, { a: 'x', b: 'y' });
      counter.add(1, { b: 'y', a: 'x' });
      counter.add(10, { a: 'x' });
      counter.add(0, { b: 'y' });
    }
    for (let reads = 0; reads < 2; reads += 1) {
      const text = await metrics.expose();
      expect(text).toContain('cloudless_c_total{a="x",b="y"} 9\n');
      expect(text).toContain('cloudless_c_total{a="x"} 30\n');
      expect(text).toContain('cloudless_c_total{b="y"} 0\n');
    }
    counter.add(0.5, { a: 'x' });
    expect(await metrics.expose()).toContain('cloudless_c_total{a="x"} 30.5\n');
    expect(() => counter.add(1, { a: 'x', b: 'y', c: 'z' })).toThrow('c');
    expect(() => counter.add(-1, { a: 'x' })).toThrow('decrease');
    expect(() => counter.add(Infinity, { a: 'x' })).toThrow('not a valid number');
    expect(await metrics.expose()).toContain('cloudless_c_total{a="x"} 30.5\n');
  });

  it('counts each value of a histogram in the series of its labels, and throws for other labels', async () => {
    const metrics = createMetrics();
    const spec = { name: 'cloudless_h', help: 'H.', buckets: [1, 2] };
    const histogram = metrics.histogram({ ...spec, labels: ['a', 'b'] });
    for (let round = 0; round < 2; round += 1) {
      histogram.observe(1.5, { a: 'x', b: 'y' });
      histogram.observe(3, { b: 'y', a: 'x' });
      histogram.observe(0.5, { a: 'x' });
      expect(() => histogram.observe(1, { c: 'z' })).toThrow('c');
      expect(() => histogram.observe(NaN, { a: 'x' })).toThrow('not a valid number');
    }
    const text = await metrics.expose();
    expect(text).toContain('cloudless_h_bucket{le="1",a="x",b="y"} 0\n');
    expect(text).toContain('cloudless_h_bucket{le="2",a="x",b="y"} 2\n');
    expect(text).toContain('cloudless_h_sum{a="x",b="y"} 9\n');
    expect(text).toContain('cloudless_h_count{a="x",b="y"} 4\n');
    expect(text).toContain('cloudless_h_count{a="x"} 2\n');
    expect(text).not.toContain('c="z"');
  });

  it('calls collectors each time metrics are exposed', async () => {
    const metrics = createMetrics();
    let value = 0;
    const gauge = metrics.gauge({ name: 'cloudless_g', help: 'G.' });
    metrics.onExpose(() => gauge.set((value += 1)));
    await metrics.expose();
    expect(await metrics.expose()).toContain('cloudless_g 2\n');
  });

  it('includes process metrics only with the process option', async () => {
    expect(await createMetrics().expose()).not.toContain('process_cpu');
    expect(await createMetrics({ process: true }).expose()).toContain('process_cpu_seconds_total');
  });
});
