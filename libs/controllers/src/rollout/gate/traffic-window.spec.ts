import { create } from '@bufbuild/protobuf';
import { TrafficReportSchema } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { SILENT_MS, TrafficWindow, WINDOW_MS, type TrafficSource } from './traffic-window.js';

const REPORT_MS = 5_000;

function setUp({ nodes = ['n1'] }: { readonly nodes?: readonly string[] } = {}) {
  const clock = new ManualClock();
  /** Creation of the watched replicas. */
  const watched = new Map([['r1', 0]]);
  const window = new TrafficWindow({
    clock,
    findWatched: (id) => watched.get(id),
    listProxyNodes: () => nodes,
  });
  const report = (
    source: TrafficSource,
    requests: number,
    { replicaId = 'r1', processId = 'p1' } = {},
  ): void =>
    source.add(
      create(TrafficReportSchema, {
        processId,
        endpoints: [{ replicaId, requests: BigInt(requests), durations: [BigInt(requests)] }],
      }),
    );
  return { clock, watched, window, report };
}

it('counts what was added since the first report, within the window', async () => {
  const { clock, window, report } = setUp();
  const source = window.open('n1');
  report(source, 1_000);
  expect(window.sum(['r1']).requests).toBe(0);
  for (let count = 1; count <= 4; count += 1) {
    await clock.advance(REPORT_MS);
    report(source, 1_000 + 50 * count);
  }
  expect(window.sum(['r1'])).toMatchObject({
    requests: 200,
    durations: [200],
    coveredMs: 4 * REPORT_MS,
  });
  await clock.advance(WINDOW_MS);
  expect(window.sum(['r1']).requests).toBe(0);
});

it('adds the reports of several proxies', async () => {
  const { clock, window, report } = setUp();
  const sources = [window.open('n1'), window.open('n2')];
  for (const source of sources) report(source, 0);
  await clock.advance(REPORT_MS);
  for (const source of sources) report(source, 10);
  expect(window.sum(['r1', 'unknown'])).toMatchObject({ requests: 20, coveredMs: REPORT_MS });
});

it('counts from 0 for another process, and after counts that went back', async () => {
  const { clock, window, report } = setUp();
  const source = window.open('n1');
  report(source, 100);
  await clock.advance(REPORT_MS);
  report(source, 30);
  await clock.advance(REPORT_MS);
  report(source, 7, { processId: 'p2' });
  await clock.advance(REPORT_MS);
  report(source, 9, { processId: 'p2' });
  expect(window.sum(['r1']).requests).toBe(32);
});

it('goes on after a stream that broke, without a loss', async () => {
  const { clock, window, report } = setUp();
  const source = window.open('n1');
  report(source, 100);
  source.close();
  await clock.advance(REPORT_MS);
  report(window.open('n1'), 140);
  expect(window.sum(['r1']).requests).toBe(40);
});

it('counts the first requests of a replica that is newer than the first report', async () => {
  const { clock, watched, window, report } = setUp();
  const source = window.open('n1');
  report(source, 5);
  await clock.advance(REPORT_MS);
  watched.set('r2', clock.wallTime());
  await clock.advance(REPORT_MS);
  report(source, 3, { replicaId: 'r2' });
  expect(window.sum(['r2'])).toMatchObject({ requests: 3 });
});

it('keeps nothing of replicas that are not watched', async () => {
  const { clock, watched, window, report } = setUp();
  const source = window.open('n1');
  report(source, 5);
  await clock.advance(REPORT_MS);
  report(source, 9);
  watched.clear();
  await clock.advance(WINDOW_MS);
  report(source, 20);
  watched.set('r1', 0);
  expect(window.sum(['r1']).requests).toBe(0);
});

describe('figures are missing', () => {
  it('at first, and while the proxy of a live node does not report', async () => {
    const { clock, window, report } = setUp();
    expect(window.explainMissing()).toContain('has just begun');
    const source = window.open('n1');
    await clock.advance(SILENT_MS);
    report(source, 0);
    expect(window.explainMissing()).toBeUndefined();
    await clock.advance(SILENT_MS + 1);
    expect(window.explainMissing()).toBe('the network proxy of node n1 does not report');
    source.close();
    expect(window.explainMissing()).toBeUndefined();
    await clock.advance(SILENT_MS + 1);
    expect(window.explainMissing()).toBe('the network proxy of node n1 does not report');
  });

  it('without any proxy', async () => {
    const { clock, window } = setUp({ nodes: [] });
    await clock.advance(SILENT_MS);
    expect(window.explainMissing()).toBe('no node has a network proxy');
  });
});
