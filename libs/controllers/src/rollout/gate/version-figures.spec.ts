import { create } from '@bufbuild/protobuf';
import { ReplicaUsageSchema } from '@cloudless/api';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { DURATION_BUCKETS, toDurationBucket } from '@cloudless/network';
import { GATE_FIGURES } from '@cloudless/policy';
import { computeFigures, type FigureSources } from './version-figures.js';

const REPLICAS = [1, 2].map((number) =>
  create(ReplicaRecordSchema, { id: `r${number}`, nodeId: 'n1', restarts: number }),
);
const DURATIONS = Array<number>(DURATION_BUCKETS).fill(0);
DURATIONS[toDurationBucket(100)] = 100;
const SUM = {
  ...{ coveredMs: 10_000, connections: 30, failures: 5 },
  ...{ requests: 100, errors: 20, durations: DURATIONS },
};

function compute({
  sum = {},
  missing,
  usage = { cpuMillis: 300, memoryBytes: 1_000n },
  replicas = REPLICAS,
}: {
  readonly sum?: Partial<typeof SUM>;
  readonly missing?: string;
  readonly usage?: { readonly cpuMillis?: number; readonly memoryBytes?: bigint } | undefined;
  readonly replicas?: typeof REPLICAS;
} = {}) {
  const sources: FigureSources = {
    traffic: { sum: () => ({ ...SUM, ...sum }), explainMissing: () => missing },
    usage: {
      getReplicaUsage: (_nodeId, replicaId) =>
        create(
          ReplicaUsageSchema,
          replicaId === 'r1' ? { cpuMillis: 100, memoryBytes: 0n } : usage,
        ),
    },
  };
  const figureOf = computeFigures(sources, replicas);
  return Object.fromEntries(GATE_FIGURES.map((figure) => [figure, figureOf(figure)]));
}

it('are rates of all replicas together, averages of a replica, and quantiles', () => {
  const { p50_ms, p90_ms, p99_ms, ...others } = compute();
  expect(others).toEqual({
    requests_per_s: 10,
    errors_per_s: 2,
    error_ratio: 0.2,
    connections_per_s: 3,
    connect_failures_per_s: 0.5,
    cpu_millis: 200,
    memory_bytes: 500,
    restarts: 3,
  });
  for (const quantile of [p50_ms, p90_ms, p99_ms]) {
    expect(quantile).toBeGreaterThan(90);
    expect(quantile).toBeLessThan(110);
  }
});

it('count failed starts as restarts, for gates on a version that has never run', () => {
  const replicas = [{ restarts: 2, failedStarts: 2 }, { restarts: 1 }].map((counts) =>
    create(ReplicaRecordSchema, { id: 'r1', nodeId: 'n1', ...counts }),
  );
  expect(compute({ replicas }).restarts).toBe(3);
});

it.each([
  [
    'what went wrong, while nothing was tried',
    { sum: { requests: 0, errors: 0, connections: 0, failures: 0, durations: [] } },
    ['errors_per_s', 'error_ratio', 'p50_ms', 'p90_ms', 'p99_ms', 'connect_failures_per_s'],
  ],
  [
    'traffic, while a proxy does not report',
    { missing: 'n1' },
    GATE_FIGURES.filter((figure) => !/^(cpu_millis|memory_bytes|restarts)$/.test(figure)),
  ],
  ['usage, when it is not known of a replica', { usage: {} }, ['cpu_millis', 'memory_bytes']],
  ['all, without replicas', { replicas: [] }, GATE_FIGURES],
])('are missing: %s', (_title, options, missing) => {
  const figures = compute(options);
  expect(GATE_FIGURES.filter((figure) => figures[figure] === undefined)).toEqual(missing);
});
