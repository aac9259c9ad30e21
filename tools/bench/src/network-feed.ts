/**
 * Time and work of the network feed: proxies of many nodes follow the feed of one coordinator in
 * this process, and one endpoint changes at a time. The same is measured with a tenth of the
 * services, because the work must follow the change and not the size of the cluster.
 *
 * Usage: network-feed [--services 5000] [--endpoints 20] [--proxies 500] [--changes 200]
 */
import { parseArgs } from 'node:util';
import { create, fromBinary } from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import {
  NetworkUpdateSchema,
  ReplicaStatus_Phase as Phase,
  WorkloadSpecSchema,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  ServiceRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { createSeededRandom, silentLog, sleep } from '@cloudless/base';
import {
  copyReplica,
  NO_PINS,
  createVersionRecord,
  openClusterState,
  toNameKeyId,
  toVersionKeyId,
  type ClusterState,
} from '@cloudless/cluster-state';
import { NetworkFeed, NodeDirectory, type FeedReader } from '@cloudless/controllers';
import { createMemoryStateStore } from '@cloudless/state-store';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const { values } = parseArgs({
  options: {
    services: { type: 'string', default: '5000' },
    endpoints: { type: 'string', default: '20' },
    proxies: { type: 'string', default: '500' },
    changes: { type: 'string', default: '200' },
  },
});
const services = Number(values.services);
const endpoints = Number(values.endpoints);
const proxies = Number(values.proxies);
const changes = Number(values.changes);

/** Longest time until all proxies have a change, 95th percentile, milliseconds. */
const MAX_P95_MS = 1_000;
/** Largest ratio of work for one change between the whole cluster and a tenth of the services. */
const MAX_RATIO = 1.5;
/** The same for CPU time, which other processes of the machine disturb. */
const MAX_CPU_RATIO = 2;
/** No node is lost during the benchmark. */
const LEASE_MS = 3_600_000;
/** Replicas in one commit of the fill, below the limit of operations. */
const REPLICAS_PER_COMMIT = 40;
/** Changes before the measurement, for compiled code. */
const WARM_UP = 20;
/** Time after which a change that not all proxies have is a violation, milliseconds. */
const GIVE_UP_MS = 30_000;
/** The same for everything at the start: 10 MB for each proxy of the whole cluster. */
const START_GIVE_UP_MS = 180_000;

/** The proxy of one node. Applies changes; everything is only counted, as on 500 machines. */
class SimulatedProxy {
  bytes = 0;
  resets = 0;
  private revision = 0n;
  private readonly stop = new AbortController();
  private readonly ready = new Map<string, boolean>();

  constructor(
    private readonly reader: FeedReader,
    private readonly onUpdate: () => void,
  ) {}

  end(): void {
    this.stop.abort();
  }

  async follow(): Promise<void> {
    let isStarted = false;
    for await (const bytes of this.reader.read(this.stop.signal)) {
      this.bytes += bytes.byteLength;
      const update = isStarted ? fromBinary(NetworkUpdateSchema, bytes) : readStart(bytes);
      if (update.reset) this.resets += 1;
      for (const entry of update.endpoints) this.ready.set(entry.id, entry.ready);
      if (!update.complete) continue;
      isStarted = true;
      this.revision = update.revision;
      this.reader.acknowledge(this.revision);
      this.onUpdate();
    }
  }

  get isStarted(): boolean {
    return this.revision > 0n;
  }

  has(endpointId: string, isReady: boolean): boolean {
    return this.ready.get(endpointId) === isReady;
  }
}

/** Field numbers of NetworkUpdate that a proxy needs of the pieces of everything. */
const { revision: REVISION, reset: RESET, complete: COMPLETE } = NetworkUpdateSchema.field;

/**
 * Reads a piece of everything without its entries: 500 machines decode them at the same time, but
 * this process would decode 50 million entries.
 */
function readStart(bytes: Uint8Array) {
  const reader = new BinaryReader(bytes);
  const start = { revision: 0n, reset: false, complete: false, endpoints: [] };
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === REVISION.number) start.revision = BigInt(reader.int64());
    else if (field === RESET.number) start.reset = reader.bool();
    else if (field === COMPLETE.number) start.complete = reader.bool();
    else reader.skip(wireType, field);
  }
  return start;
}

/** A coordinator with services whose endpoints are all ready. */
async function openCoordinator(serviceCount: number) {
  const store = createMemoryStateStore({ clock: systemClock, historyLimit: 10_000 });
  const identity = { clock: systemClock, random: systemRandom, log: silentLog };
  const state = await openClusterState({ store, ...identity, holder: 'bench' });
  const nodes = new NodeDirectory({ clock: systemClock, log: silentLog, leaseMs: LEASE_MS });
  nodes.start([]);
  for (let index = 0; index < proxies; index += 1) {
    const id = nodeId(index);
    const node = create(NodeRecordSchema, {
      ...{ id, hello: { nodeId: id, network: { address: '10.0.0.1:9443', hostId: id } } },
    });
    await state.commitObserved(state.transaction().put('node', id, node));
    nodes.startSession(id);
  }
  for (let index = 0; index < serviceCount; index += 1) await putService(state, index);
  return { state, nodes };
}

const nodeId = (index: number): string => `node-${index % proxies}`;
const replicaId = (service: number, replica: number): string => `w${service}-${replica}`;

async function putService(state: ClusterState, index: number): Promise<void> {
  const [uid, namespace, name] = [`w${index}`, 'default', `service-${index}`];
  const ports = [{ name: 'http', containerPort: 8_080 }];
  const spec = create(WorkloadSpecSchema, { command: ['serve'], replicas: endpoints, ports });
  const clusterIp = `10.${96 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
  const workload = { uid, namespace, name: uid, spec, generation: 1n, version: 1 };
  await state.commitObserved(
    state
      .transaction()
      .put('name', toNameKeyId(namespace, uid), create(WorkloadRecordSchema, { uid }))
      .put('workload', uid, create(WorkloadRecordSchema, workload))
      .put(
        'version',
        toVersionKeyId(uid, 1),
        createVersionRecord(spec, {
          version: 1,
          nowMs: systemClock.wallTime(),
          earlier: [],
          pins: NO_PINS,
        }),
      )
      .put('control', uid, create(ControlRecordSchema, { uid, nextSequence: 1n }))
      .put(
        'service',
        `${namespace}/${name}`,
        create(ServiceRecordSchema, {
          ...{ namespace, name, uid: `s${index}`, clusterIp },
          spec: { workload: uid, ports: [{ name: 'http', port: 80 }] },
        }),
      ),
  );
  for (let from = 0; from < endpoints; from += REPLICAS_PER_COMMIT) {
    const transaction = state.transaction();
    for (let slot = from; slot < Math.min(endpoints, from + REPLICAS_PER_COMMIT); slot += 1)
      transaction.createReplica(
        create(ReplicaRecordSchema, {
          ...{ id: replicaId(index, slot), uid, sequence: BigInt(slot + 1), slot, version: 1 },
          ...{ nodeId: nodeId(index + slot), phase: Phase.RUNNING, ready: true },
          ...{ desiredRunning: true, containerId: `c${slot}` },
          endpoints: [{ portName: 'http', ip: '10.1.0.1', port: 30_000 + slot }],
        }),
      );
    await state.commitObserved(transaction);
  }
}

/** Runs `check` after each update of a proxy until it returns true, or the time limit passes. */
class UpdateWaits {
  private check: () => void = () => undefined;

  readonly onUpdate = (): void => this.check();

  /** @returns True when `isDone` returned true in time. */
  async until(isDone: () => boolean, limitMs = GIVE_UP_MS): Promise<boolean> {
    const startMs = systemClock.now();
    while (!isDone()) {
      if (systemClock.now() - startMs > limitMs) return false;
      await new Promise<void>((resolve) => {
        const timer = systemClock.setTimer(limitMs, resolve);
        this.check = () => {
          timer.cancel();
          resolve();
        };
      });
    }
    return true;
  }
}

const round = (value: number, digits = 2): number => Number(value.toFixed(digits));
const toMib = (bytes: number): number => Math.round(bytes / 1_048_576);
const cpuMs = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
};

async function measure(serviceCount: number, violations: Violations) {
  const random = createSeededRandom(serviceCount);
  const { state, nodes } = await openCoordinator(serviceCount);
  const filledBytes = process.memoryUsage().rss;
  const feed = new NetworkFeed({ ...{ state, nodes }, clock: systemClock, random: systemRandom });
  const waits = new UpdateWaits();
  const startMs = systemClock.now();
  const followers = Array.from({ length: proxies }, (_, index) => {
    const position = { nodeId: nodeId(index), feedId: '', revision: 0n };
    return new SimulatedProxy(feed.open(position), waits.onUpdate);
  });
  for (const follower of followers) void follower.follow();
  const isStarted = await waits.until(
    () => followers.every((follower) => follower.isStarted),
    START_GIVE_UP_MS,
  );
  violations.check(isStarted, `${serviceCount} services: not all proxies have started`);
  const startedMs = systemClock.now() - startMs;
  const startBytes = followers[0]?.bytes ?? 0;

  /** Changes one endpoint. @returns Milliseconds until all proxies have the change. */
  const change = async (): Promise<number> => {
    const service = Math.floor(random.next() * serviceCount);
    const replica = replicaId(service, Math.floor(random.next() * endpoints));
    const read = state.view().replica(replica);
    if (read === undefined) throw new Error(`there is no replica ${replica}`);
    const ready = !read.value.ready;
    const id = `default/service-${service}/${replica}`;
    const fromMs = systemClock.now();
    const next = copyReplica(read.value, { ready });
    await state.commitObserved(state.transaction().updateReplica(read, next));
    const isDone = await waits.until(() => followers.every((each) => each.has(id, ready)));
    violations.check(isDone, `${serviceCount} services: not all proxies have the change of ${id}`);
    return systemClock.now() - fromMs;
  };
  for (let count = 0; count < WARM_UP; count += 1) await change();
  // Work that the start has left over is not counted for the changes.
  await sleepKeepingAlive(500);
  const before = { ...feed.counts, cpuMs: cpuMs() };
  const delays: number[] = [];
  for (let count = 0; count < changes; count += 1) delays.push(await change());
  const after = { ...feed.counts, cpuMs: cpuMs() };
  const rssBytes = process.memoryUsage().rss;
  const resets = followers.reduce((sum, follower) => sum + follower.resets - 1, 0);
  violations.checkZero(resets, `${serviceCount} services: proxies that received everything again`);
  for (const follower of followers) follower.end();
  feed.close();
  nodes.close();
  await state.close();
  const perChange = (name: 'derivedEntries' | 'encodedBytes' | 'sentBytes' | 'cpuMs'): number =>
    round((after[name] - before[name]) / changes);
  return {
    services: serviceCount,
    endpoints: serviceCount * endpoints,
    start: { ms: Math.round(startedMs), bytesPerProxy: startBytes },
    allProxiesMs: summarise(delays),
    perChange: {
      cpuMs: perChange('cpuMs'),
      cpuMicrosPerProxy: round((perChange('cpuMs') * 1_000) / proxies),
      derivedEntries: perChange('derivedEntries'),
      encodedBytes: perChange('encodedBytes'),
      bytesPerProxy: round(perChange('sentBytes') / proxies),
    },
    mebibytes: { filled: toMib(filledBytes), following: toMib(rssBytes) },
  };
}

/** The clock's timers do not keep a process alive. */
async function sleepKeepingAlive(ms: number): Promise<void> {
  const keeper = setInterval(() => undefined, 60_000);
  await sleep(systemClock, ms);
  clearInterval(keeper);
}

const keeper = setInterval(() => undefined, 60_000);
const violations = new Violations();
const small = await measure(Math.max(1, Math.round(services / 10)), violations);
const whole = await measure(services, violations);
const { p95 } = whole.allProxiesMs;
violations.check(p95 <= MAX_P95_MS, `P95 until all proxies have a change: ${p95} ms`);
const ratioOf = (name: keyof typeof whole.perChange): number =>
  round(whole.perChange[name] / Math.max(0.01, small.perChange[name]));
const ratios = {
  cpu: ratioOf('cpuMs'),
  derivedEntries: ratioOf('derivedEntries'),
  encodedBytes: ratioOf('encodedBytes'),
};
violations.check(ratios.cpu <= MAX_CPU_RATIO, `CPU of a change grows by ${ratios.cpu}`);
violations.check(
  ratios.derivedEntries <= MAX_RATIO && ratios.encodedBytes <= MAX_RATIO,
  `work of a change grows with the cluster: ${JSON.stringify(ratios)}`,
);
clearInterval(keeper);
printReport('network-feed', {
  ...{ proxies, changes, small, whole, ratios },
  violations: violations.texts,
});
process.exitCode = violations.exitCode();
