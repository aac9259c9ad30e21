// Start times of real containers on one machine, from the request until they run: by bare calls of
// the container runtime, by Cloudless as a client of WatchWorkloads sees it, and by Docker Swarm,
// one after the other in the same run. Needs root and the set-up of tools/containers/setup.mjs.
// Flags: --quick (20 replicas, without Swarm), --sizes 20,50,200, --networks pod,host, --rounds 3,
// --sides bare,cloudless,swarm.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { repository } from '@cloudless/e2e';
import { BareCalls } from './real-start-bare.js';
import { Cloudless, MAX_REPLICAS } from './real-start-cloudless.js';
import { Swarm } from './real-start-swarm.js';
import {
  CONCURRENCY,
  GRACE_MS,
  UPDATE_PARALLELISM,
  type Figures,
  type NetworkKind,
  type Side,
} from './real-start-terms.js';
import { printReport, summarise, type Summary } from './report.js';
import { Violations } from './violations.js';

/**
 * Number of replicas of a first run that is not counted, because in a cluster the programs have run
 * before.
 */
const WARM_UP = 8;
/** Larger sizes are measured once, because they take long and vary less. */
const REPEATED_UP_TO = 50;

type Step = 'create' | 'update' | 'recover' | 'remove';
type Row = Readonly<Record<Step, Summary>> & {
  readonly createCpu?: Readonly<Record<string, Summary>>;
};

const { values: flags } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    sizes: { type: 'string' },
    networks: { type: 'string', default: 'pod,host' },
    rounds: { type: 'string' },
    sides: { type: 'string' },
  },
});
const sizes = (flags.sizes ?? (flags.quick ? '20' : '20,50,200')).split(',').map(Number);
const networks = flags.networks.split(',') as readonly NetworkKind[];
const rounds = Number(flags.rounds ?? (flags.quick ? 1 : 3));
const sideNames = (flags.sides ?? (flags.quick ? 'bare,cloudless' : 'bare,cloudless,swarm')).split(
  ',',
);

/** Resources to close at the end, newest first. */
const open: { close(): Promise<void> }[] = [];

/** Returns the sides to measure at one size on one network. */
function createSides(
  sides: readonly Side[],
  swarm: Swarm | undefined,
  size: number,
  network: NetworkKind,
): readonly Side[] {
  if (swarm === undefined) return sides;
  const isSmallest = size === Math.min(...sizes);
  return [
    ...sides,
    swarm.createSide('swarm'),
    ...(network === 'pod' ? [swarm.createSide('swarmOverlay')] : []),
    ...(isSmallest ? [swarm.createSide('swarmDefaults')] : []),
  ];
}

async function measureAll(
  sides: readonly Side[],
  size: number,
  network: NetworkKind,
): Promise<Readonly<Record<string, unknown>>> {
  const repeats = size > REPEATED_UP_TO ? 1 : rounds;
  const figures = new Map<string, Figures[]>(sides.map(({ name }) => [name, []]));
  for (let round = 1; round <= repeats; round += 1) {
    for (const side of sides) {
      const measured = await side.measure(size, network);
      figures.get(side.name)?.push(measured);
      printLine(`${size} ${network} ${round}/${repeats} ${side.name}: ${formatFigures(measured)}`);
    }
  }
  const rows = new Map([...figures].map(([name, samples]) => [name, toRow(samples)]));
  return {
    replicas: size,
    network,
    rounds: repeats,
    ...Object.fromEntries(rows),
    ratios: computeRatios(rows),
  };
}

function toRow(samples: readonly Figures[]): Row {
  return {
    create: summarise(samples.map(({ createMs }) => createMs)),
    update: summarise(samples.map(({ updateMs }) => updateMs)),
    recover: summarise(samples.flatMap(({ recoverMs }) => recoverMs)),
    remove: summarise(samples.map(({ removeMs }) => removeMs)),
    ...summariseCpu(samples),
  };
}

function summariseCpu(samples: readonly Figures[]): Pick<Row, 'createCpu'> {
  const [first] = samples;
  if (first?.createCpuMs === undefined) return {};
  const names = Object.keys(first.createCpuMs);
  return {
    createCpu: Object.fromEntries(
      names.map((name) => [
        name,
        summarise(samples.map((sample) => sample.createCpuMs?.[name] ?? 0)),
      ]),
    ),
  };
}

/** Computes ratios of medians: Cloudless to bare calls, and each Swarm side to Cloudless. */
function computeRatios(rows: ReadonlyMap<string, Row>): Readonly<Record<string, unknown>> {
  const [bare, cloudless] = [rows.get('bare'), rows.get('cloudless')];
  const ratios: Record<string, unknown> = {};
  if (cloudless === undefined) return ratios;
  if (bare !== undefined) ratios['cloudlessToBare'] = computeRatio(cloudless, bare);
  for (const [name, row] of rows)
    if (name.startsWith('swarm')) ratios[`${name}ToCloudless`] = computeRatio(row, cloudless);
  return ratios;
}

/** Divides the median durations of two rows. */
function computeRatio(numerator: Row, denominator: Row): Readonly<Record<Step, number>> {
  const getRatio = (key: Step): number =>
    Math.round((numerator[key].median / denominator[key].median) * 100) / 100;
  return {
    create: getRatio('create'),
    update: getRatio('update'),
    recover: getRatio('recover'),
    remove: getRatio('remove'),
  };
}

function formatFigures({
  createMs,
  updateMs,
  recoverMs,
  removeMs,
  createCpuMs = {},
}: Figures): string {
  const recover = recoverMs.map(Math.round).join(' ');
  const cpu = Object.entries(createCpuMs).map(
    ([name, ms]) => `, CPU of ${name} at creation ${Math.round(ms)}`,
  );
  const [create, update, remove] = [createMs, updateMs, removeMs].map(Math.round);
  return `create ${create} update ${update} recover ${recover} remove ${remove} ms${cpu.join('')}`;
}

function printLine(text: string): void {
  process.stderr.write(`${text}\n`);
}

const violations = new Violations();
let closing: Promise<void> | undefined;

/** Closes all resources. An error is a violation, and the other resources are still closed. */
function closeAll(): Promise<void> {
  return (closing ??= (async () => {
    for (const resource of [...open].reverse())
      await resource
        .close()
        .catch((reason: unknown) =>
          violations.check(false, `resources are left behind: ${String(reason)}`),
        );
  })());
}

const TERMS = {
  unit: 'ms',
  parallelBareCalls: CONCURRENCY,
  update: `max_unavailable ${UPDATE_PARALLELISM}, max_surge 0; Swarm: update-parallelism ${UPDATE_PARALLELISM}, stop-first`,
  graceMs: GRACE_MS,
  warmUp: `${WARM_UP} replicas, once`,
  minReadyDuration: 0,
  swarm:
    'by the Engine API, image by id; restart-delay 0, update-monitor 0; network: docker bridge, or the host of its namespace',
  swarmOverlay: 'the same, on an overlay network',
  swarmDefaults: 'restart-delay 5 s, update-monitor 5 s, update-parallelism 1',
  recover:
    'bare: until the runtime reports the end, asked each 10 ms, and another runs; Cloudless: with its back-off of 100 ms',
  goals:
    'cloudlessToBare 1.2 for create, update and remove; swarmToCloudless 2 for update, 1.5 for remove; recover 500 ms',
};

function checkFlags(): void {
  const invalidSize = sizes.find((size) => !(size >= 1 && size <= MAX_REPLICAS));
  if (invalidSize !== undefined)
    throw new Error(`--sizes: expected numbers from 1 to ${MAX_REPLICAS}`);
  if (networks.some((network) => network !== 'pod' && network !== 'host'))
    throw new Error('--networks: expected pod, host, or pod,host');
  if (!(rounds >= 1)) throw new Error('--rounds: expected 1 or more');
}

/**
 * Returns the container runtime and the registry of the set-up.
 * @throws An error without root, or when no container runtime runs.
 */
function findContainers(): { readonly socket: string; readonly registry: string } {
  const setup = 'tools/containers/setup.mjs';
  if (process.getuid?.() !== 0) throw new Error('real-start needs root for real containers');
  const { status, stdout } = spawnSync(
    process.execPath,
    [join(repository, setup), 'status', '--json'],
    { encoding: 'utf8' },
  );
  if (status !== 0)
    throw new Error(`no container runtime is running; start one with: node ${setup} install`);
  return JSON.parse(stdout) as ReturnType<typeof findContainers>;
}

async function runBenchmark(): Promise<void> {
  checkFlags();
  const { socket, registry } = findContainers();
  const sides: Side[] = [];
  if (sideNames.includes('bare')) sides.push(new BareCalls(socket));
  open.push(...sides);
  if (sideNames.includes('cloudless')) {
    const cloudless = await Cloudless.start(socket);
    sides.push(cloudless);
    open.push(cloudless);
  }
  const swarm = sideNames.includes('swarm') ? await Swarm.start(registry) : undefined;
  if (swarm !== undefined) open.push(swarm);
  for (const side of [...sides, ...(swarm === undefined ? [] : [swarm.createSide('swarm')])])
    await side.measure(WARM_UP, 'host');
  const results = [];
  for (const network of networks) {
    for (const size of sizes)
      results.push(await measureAll(createSides(sides, swarm, size, network), size, network));
  }
  const docker = swarm === undefined ? {} : { docker: await swarm.readVersion() };
  printReport('real-start', { ...TERMS, ...docker, results });
}

// Timers alone do not keep the process alive.
setInterval(() => undefined, 2 ** 30);
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(
    signal,
    () => void closeAll().finally(() => process.exit(violations.exitCode() || 1)),
  );
}
try {
  await runBenchmark();
} finally {
  await closeAll();
}
process.exit(violations.exitCode());
