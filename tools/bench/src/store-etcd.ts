// Commits of the store on etcd, next to the same number of direct puts with a client of etcd of the
// same sort in the same run: three members on this machine. Counts the round trips.
import { tmpdir } from 'node:os';
import { parseArgs } from 'node:util';
import { systemClock } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { openEtcdStateStore } from '@cloudless/state-store-etcd';
import { EtcdClient, WRITE } from '@cloudless/state-store-etcd/client';
import { EtcdCluster } from '@cloudless/state-store-etcd/testing';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const { values } = parseArgs({
  options: {
    // The disk of this directory decides what a flush of etcd costs.
    directory: { type: 'string', default: tmpdir() },
    // Measured pairs of runs of each number of writers, after a pair that is not counted.
    runs: { type: 'string', default: '3' },
    // Duration of a run, milliseconds.
    milliseconds: { type: 'string', default: '1000' },
  },
});
const RUNS = Number(values.runs);
const RUN_MS = Number(values.milliseconds);
const WRITERS = [1, 64, 1_000];
/** Size of a replica record with its container facts. */
const VALUE = new Uint8Array(200).fill(7);
/** Least share of the throughput of direct puts. */
const LEAST_RATIO = 0.8;

/** Lets writers write, one write after the other each, for {@link RUN_MS}. */
async function measure(writers: number, write: (writer: number) => Promise<unknown>) {
  const startedAt = systemClock.now();
  const until = startedAt + RUN_MS;
  const cpuBefore = process.cpuUsage();
  let writes = 0;
  await Promise.all(
    Array.from({ length: writers }, async (_, writer) => {
      while (systemClock.now() < until) {
        await write(writer);
        writes += 1;
      }
    }),
  );
  const { user, system } = process.cpuUsage(cpuBefore);
  const seconds = (systemClock.now() - startedAt) / 1_000;
  return { writes, perSecond: writes / seconds, cpuUs: (user + system) / writes };
}

/** Transactions that all members of etcd have handled. */
async function countTxnCalls(): Promise<number> {
  const counts = await Promise.all(
    cluster.members.map(async ({ metricsUrl }) => {
      const text = await (await fetch(`${metricsUrl}/metrics`)).text();
      const lines = text.matchAll(/^grpc_server_handled_total\{.*grpc_method="Txn".*\} (\S+)$/gm);
      return [...lines].reduce((sum, [, count]) => sum + Number(count), 0);
    }),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

const cluster = await EtcdCluster.start({ directory: values.directory });
const violations = new Violations();
const results: Record<string, unknown> = {};
const client = new EtcdClient({
  endpoints: cluster.endpoints,
  clock: systemClock,
  log: silentLog,
});
const store = await openEtcdStateStore({
  endpoints: cluster.endpoints,
  prefix: '/bench',
  allowForeignKeys: true,
});
try {
  for (const writers of WRITERS) {
    const direct: number[] = [];
    const grouped: number[] = [];
    const ratios: number[] = [];
    const directCpu: number[] = [];
    const groupedCpu: number[] = [];
    const tripsPerCommit: number[] = [];
    for (let run = 0; run <= RUNS; run += 1) {
      const puts = await measure(writers, (writer) => {
        const request = { key: Buffer.from(`/direct/${writer}`), value: VALUE };
        return client.call(WRITE, ({ kv }, settings) => kv.put(request, settings));
      });
      const callsBefore = await countTxnCalls();
      const commits = await measure(writers, (writer) =>
        store.txn([], [{ put: `/own/${writer}`, value: VALUE }]),
      );
      if (run === 0) continue;
      direct.push(puts.perSecond);
      grouped.push(commits.perSecond);
      ratios.push(commits.perSecond / puts.perSecond);
      directCpu.push(puts.cpuUs);
      groupedCpu.push(commits.cpuUs);
      tripsPerCommit.push(((await countTxnCalls()) - callsBefore) / commits.writes);
    }
    const ratio = summarise(ratios.map((one) => one * 100)).median / 100;
    const trips = Math.max(...tripsPerCommit);
    if (writers > 1)
      violations.check(
        ratio >= LEAST_RATIO,
        `${writers} writers: ${ratio.toFixed(2)} of the throughput of direct puts`,
      );
    violations.check(trips <= 1, `${writers} writers: ${trips.toFixed(2)} round trips per commit`);
    results[`writers ${writers}`] = {
      directPutsPerSecond: summarise(direct),
      commitsPerSecond: summarise(grouped),
      ratio,
      directCpuUs: summarise(directCpu),
      commitCpuUs: summarise(groupedCpu),
      roundTripsPerCommit: Math.round(trips * 1_000) / 1_000,
    };
  }
} finally {
  await store.close();
  client.close();
  await cluster.stop();
}
printReport('store-etcd', results);
process.exit(violations.exitCode());
