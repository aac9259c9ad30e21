/**
 * Connections, requests and bytes through the network proxy beside direct connections and HAProxy:
 * on one node, and with TLS between two network namespaces (as root). CPU seconds are those of the
 * proxies alone, so that the figures hold on a busy machine too.
 *
 * Usage: mesh [--connections 3000] [--requests 30000] [--megabytes 512] [--idle 10000]
 *        [--unread 2000] [--only memory]
 *
 * `--only memory` (target `mesh-memory`) measures the memory of the proxies alone: with idle
 * connections, and with connections whose client reads nothing of 8 MiB. Ends with exit code 1 when
 * idle connections take 200 MiB or more of a proxy, or each unread connection more than 256 KiB, and
 * when the limit of open files permits less than 95 % of the connections asked for.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { systemClock } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import { TestAuthority } from '@cloudless/identity/testing';
import {
  loadBytes,
  loadConnections,
  loadRequests,
  openIdle,
  openUnread,
  type LoadResult,
} from './mesh/load.js';
import { aNode, anUpdate, BenchProcesses } from './mesh/bench-processes.js';
import { readCpuSeconds, readMemoryBytes } from './process-figures.js';
import { printReport } from './report.js';
import { Violations } from './violations.js';

const { values } = parseArgs({
  options: {
    connections: { type: 'string', default: '3000' },
    requests: { type: 'string', default: '30000' },
    megabytes: { type: 'string', default: '512' },
    idle: { type: 'string', default: '10000' },
    unread: { type: 'string', default: '2000' },
    only: { type: 'string' },
  },
});
if (values.only !== undefined && values.only !== 'memory')
  throw new Error(`--only ${values.only}: expected memory`);
const isMemoryOnly = values.only === 'memory';
/** Memory that idle connections may take of each proxy, MiB. */
const IDLE_LIMIT_MIB = 200;
/** Memory that a connection whose client reads nothing may take of each proxy, KiB. */
const UNREAD_LIMIT_KIB = 256;
/** Share of the connections asked for that the limit of open files has to permit. */
const LEAST_SHARE = 0.95;
/** Time after which memory that does not grow any more has its final size, milliseconds. */
const STEADY_MS = 2_000;
const violations = new Violations();
const NAMESPACE = 'cloudless-mesh-bench';
const NEAR = '10.250.7.1';
const FAR = '10.250.7.2';
const MESH_PORT = 19_443;
const HAPROXY_TLS_PORT = 19_444;
const directory = mkdtempSync(join(tmpdir(), 'mesh-bench-'));
const processes = new BenchProcesses(directory, NAMESPACE);

/** A way from the client to the server. */
interface Path {
  readonly port: number;
  readonly host: string;
  /** Ids of the proxies on the way. */
  readonly pids: readonly number[];
}

const HAPROXY_DEFAULTS = [
  'global',
  ...[' nbthread 1', ' maxconn 9000'],
  'defaults',
  ...[' mode tcp', ' timeout connect 5s', ' timeout client 1h', ' timeout server 1h'],
];

async function runHaproxy(lines: readonly string[], isFar: boolean): Promise<number> {
  const file = join(directory, `haproxy-${processes.count}.cfg`);
  writeFileSync(file, `${[...HAPROXY_DEFAULTS, ...lines].join('\n')}\n`);
  const child = processes.run(['haproxy', '-db', '-f', file], isFar);
  await sleep(systemClock, 1_000);
  if (child.exitCode !== null) throw new Error('haproxy ended');
  return child.pid ?? 0;
}

async function measure(name: string, { host, port, pids }: Path) {
  const target = { host, port };
  const cpu = (): number => pids.reduce((sum, pid) => sum + readCpuSeconds(pid), 0);
  const load = async (action: () => Promise<LoadResult>, unit: number) => {
    const before = cpu();
    const { count, seconds, ...latency } = await action();
    const cpuSeconds = cpu() - before;
    const perSecond = Math.round(count / unit / seconds);
    if (pids.length === 0) return { perSecond, ...latency };
    const perCpuSecond = Math.round(count / unit / cpuSeconds);
    return { perSecond, cpuSeconds: Math.round(cpuSeconds * 100) / 100, perCpuSecond, ...latency };
  };
  await loadConnections(target, 300); // compiled code
  await loadRequests(target, 3_000);
  const result = {
    connections: await load(() => loadConnections(target, Number(values.connections)), 1),
    requests: await load(() => loadRequests(target, Number(values.requests)), 1),
    megabytes: await load(() => loadBytes(target, Number(values.megabytes) * 1e6), 1e6),
  };
  process.stderr.write(`${name} ${JSON.stringify(result)}\n`);
  return result;
}

/** Returns the files that a process may open (`ulimit -n`), less some for its own use. */
function readFileLimit(): number {
  const limits = readFileSync('/proc/self/limits', 'utf8');
  return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? Infinity) - 200;
}

/**
 * Measures the resident memory of each proxy before, and while connections are open: those whose
 * client reads nothing, then idle ones. A process reuses memory that it has freed, so the figure of the
 * idle ones is exact only with `--unread 0`.
 * @param filesPerConnection - Open files of a proxy for each connection.
 */
async function measureMemory(name: string, path: Path, filesPerConnection: number) {
  const limit = Math.floor(readFileLimit() / filesPerConnection);
  const take = async (asked: string, openAll: typeof openIdle) => {
    const count = Math.min(Number(asked), limit);
    violations.check(
      count >= Number(asked) * LEAST_SHARE,
      `${name}: the limit of open files permits ${count} of ${asked} connections; raise ulimit -n`,
    );
    const { host, port, pids } = path;
    await loadConnections({ host, port }, 300); // compiled code
    const before = pids.map(readMemoryBytes);
    const close = await openAll({ host, port }, count);
    const after = await readSteadyMemory(pids);
    close();
    const taken = after.map((bytes, index) => bytes - (before[index] ?? 0));
    return { count, taken };
  };
  const unread = await take(values.unread, openUnread);
  const idle = await take(values.idle, openIdle);
  for (const bytes of idle.taken)
    violations.check(
      toMib(bytes) < IDLE_LIMIT_MIB,
      `${name}: ${idle.count} idle connections take ${toMib(bytes)} MiB of a proxy, the limit is ${IDLE_LIMIT_MIB}`,
    );
  const toKibEach = (bytes: number): number => Math.round(bytes / 1024 / Math.max(1, unread.count));
  for (const bytes of unread.taken)
    violations.check(
      toKibEach(bytes) <= UNREAD_LIMIT_KIB,
      `${name}: each unread connection takes ${toKibEach(bytes)} KiB of a proxy, the limit is ${UNREAD_LIMIT_KIB}`,
    );
  return {
    idle: { count: idle.count, mebibytes: idle.taken.map(toMib) },
    unread: { count: unread.count, kibibytesEach: unread.taken.map(toKibEach) },
  };
}

/** Reads the resident memory of processes once the memory does not grow any more. */
async function readSteadyMemory(pids: readonly number[]): Promise<readonly number[]> {
  for (let before = pids.map(readMemoryBytes); ;) {
    await sleep(systemClock, STEADY_MS);
    const after = pids.map(readMemoryBytes);
    const grows = after.some((bytes, index) => bytes > (before[index] ?? 0) * 1.01);
    if (!grows) return after;
    before = after;
  }
}

const toMib = (bytes: number): number => Math.round(bytes / 1_048_576);

async function measureOneNode() {
  const host = '127.0.0.1';
  const server = await processes.runOurs('server', host, false);
  const bind = { snapshotFile: join(directory, 'one'), bindAddress: host };
  const update = anUpdate({ nodeId: 'a', ip: host, port: server.port }, [aNode('a')]);
  const ours = await processes.runProxy({ nodeId: 'a', update, ...bind }, false);
  const oursPath = { host, port: ours.port, pids: [ours.pid] };
  if (isMemoryOnly) return measureMemory('one node', oursPath, 2);
  const haproxyPort = 19_480;
  const haproxy = await runHaproxy(
    ['listen l', ` bind ${host}:${haproxyPort}`, ` server s ${host}:${server.port}`],
    false,
  );
  return {
    direct: await measure('direct', { host, port: server.port, pids: [] }),
    ours: await measure('ours', oursPath),
    haproxy: await measure('haproxy', { host, port: haproxyPort, pids: [haproxy] }),
    memory: await measureMemory('one node', oursPath, 2),
  };
}

async function measureTwoNodes() {
  const server = await processes.runOurs('server', FAR, true);
  const authority = await TestAuthority.create({ nowMs: systemClock.wallTime() });
  const [near, far] = [await authority.issue('node', 'a'), await authority.issue('node', 'b')];
  const { bundlePem } = authority;
  const identityOf = ({ keyPem, chainPem }: typeof near) => ({
    ...{ keyPem, chainPem, bundlePem, trustDomain: 'cloudless' },
  });
  const update = anUpdate({ nodeId: 'b', ip: FAR, port: server.port }, [
    aNode('a', near.serial),
    aNode('b', far.serial, `${FAR}:${MESH_PORT}`),
  ]);
  const oursFar = await processes.runProxy(
    {
      ...{ nodeId: 'b', identity: identityOf(far), update, bindAddress: FAR },
      ...{ meshListen: { host: FAR, port: MESH_PORT }, snapshotFile: join(directory, 'far') },
    },
    true,
  );
  const oursNear = await processes.runProxy(
    {
      ...{ nodeId: 'a', identity: identityOf(near), update, bindAddress: NEAR },
      snapshotFile: join(directory, 'near'),
    },
    false,
  );
  const ours = { host: NEAR, port: oursNear.port, pids: [oursNear.pid, oursFar.pid] };
  if (isMemoryOnly) return measureMemory('two nodes', ours, 1);
  const [pem, ca] = [join(directory, 'both.pem'), join(directory, 'ca.pem')];
  writeFileSync(pem, near.chainPem + near.keyPem, { mode: 0o600 });
  writeFileSync(ca, bundlePem);
  const farAddress = `${FAR}:${HAPROXY_TLS_PORT}`;
  const tls = `ssl crt ${pem} ca-file ${ca} verify required ssl-min-ver TLSv1.3`;
  const haproxyFar = await runHaproxy(
    ['listen l', ` bind ${farAddress} ${tls}`, ` server s ${FAR}:${server.port}`],
    true,
  );
  const haproxyNear = await runHaproxy(
    ['listen l', ` bind ${NEAR}:19481`, ` server s ${farAddress} ${tls}`],
    false,
  );
  const haproxy = { host: NEAR, port: 19_481, pids: [haproxyNear, haproxyFar] };
  return {
    ours: await measure('ours over TLS', ours),
    haproxy: await measure('haproxy over TLS', haproxy),
    memory: await measureMemory('two nodes', ours, 1),
  };
}

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

/** Two machines on one cable: this namespace and another. */
function createNamespace(): void {
  ip('netns', 'add', NAMESPACE);
  ip('link', 'add', 'mesh-near', 'type', 'veth', 'peer', 'name', 'mesh-far', 'netns', NAMESPACE);
  ip('addr', 'add', `${NEAR}/30`, 'dev', 'mesh-near');
  ip('link', 'set', 'mesh-near', 'up');
  ip('-n', NAMESPACE, 'addr', 'add', `${FAR}/30`, 'dev', 'mesh-far');
  ip('-n', NAMESPACE, 'link', 'set', 'mesh-far', 'up');
  ip('-n', NAMESPACE, 'link', 'set', 'lo', 'up');
}

let hasNamespace = false;
try {
  const oneNode = await measureOneNode();
  processes.endAll();
  const isRoot = process.getuid?.() === 0;
  if (isRoot) {
    createNamespace();
    hasNamespace = true;
  }
  const twoNodes = isRoot ? await measureTwoNodes() : 'skipped: network namespaces need root';
  printReport(isMemoryOnly ? 'mesh-memory' : 'mesh', {
    ...{ oneNode, twoNodes },
    violations: violations.texts,
  });
  process.exitCode = violations.exitCode();
} finally {
  processes.endAll();
  if (hasNamespace) ip('netns', 'delete', NAMESPACE);
  rmSync(directory, { recursive: true });
}
