/**
 * Connections, requests and bytes through the network proxy beside direct connections and HAProxy:
 * on one node, and with TLS between two network namespaces (as root). CPU seconds are those of the
 * proxies alone, so that the figures hold on a busy machine too.
 *
 * Usage: mesh [--connections 3000] [--requests 30000] [--megabytes 512] [--idle 10000]
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { create, toJsonString } from '@bufbuild/protobuf';
import { NetworkUpdateSchema } from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import { TestAuthority } from '@cloudless/identity/testing';
import {
  loadBytes,
  loadConnections,
  loadRequests,
  openIdle,
  type LoadResult,
} from './mesh/load.js';
import type { ProxyProcess } from './mesh/mesh-process.js';
import { readCpuSeconds, readMemoryBytes } from './process-figures.js';
import { printReport } from './report.js';

const { values } = parseArgs({
  options: {
    connections: { type: 'string', default: '3000' },
    requests: { type: 'string', default: '30000' },
    megabytes: { type: 'string', default: '512' },
    idle: { type: 'string', default: '10000' },
  },
});
const NAMESPACE = 'cloudless-mesh-bench';
const NEAR = '10.250.7.1';
const FAR = '10.250.7.2';
const MESH_PORT = 19_443;
const HAPROXY_TLS_PORT = 19_444;
const directory = mkdtempSync(join(tmpdir(), 'mesh-bench-'));
const children: ChildProcess[] = [];

/** A way from the client to the server. */
interface Path {
  readonly port: number;
  readonly host: string;
  /** Ids of the proxies on the way. */
  readonly pids: readonly number[];
}

function run(command: readonly string[], isFar: boolean): ChildProcess {
  const [file = '', ...args] = isFar ? ['ip', 'netns', 'exec', NAMESPACE, ...command] : command;
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  return child;
}

/** Runs a process of ours, which prints the port at which it listens. */
async function runOurs(role: string, argument: string, isFar: boolean) {
  const program = join(import.meta.dirname, 'mesh/mesh-process.ts');
  const args = ['--conditions=@cloudless/source', '--import', 'tsx', program, role, argument];
  const child = run([process.execPath, ...args], isFar);
  if (child.stdout === null) throw new Error('no output');
  for await (const line of createInterface({ input: child.stdout })) {
    const { port } = JSON.parse(line) as { port: number };
    return { port, pid: child.pid ?? 0 };
  }
  throw new Error(`the process "${role}" ended`);
}

async function runProxy(settings: ProxyProcess, isFar: boolean) {
  const file = join(directory, `${settings.nodeId}-${children.length}.json`);
  writeFileSync(file, JSON.stringify(settings), { mode: 0o600 });
  return runOurs('proxy', file, isFar);
}

async function runHaproxy(lines: string, isFar: boolean): Promise<number> {
  const file = join(directory, `haproxy-${children.length}.cfg`);
  writeFileSync(
    file,
    `global\n nbthread 1\n maxconn 9000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n${lines}\n`,
  );
  const child = run(['haproxy', '-db', '-f', file], isFar);
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

async function measureIdle({ host, port, pids }: Path) {
  const count = Number(values.idle);
  const rss = (): number => pids.reduce((sum, pid) => sum + readMemoryBytes(pid), 0);
  const before = rss();
  const close = await openIdle({ host, port }, count);
  const after = rss();
  close();
  return { count, mebibytesBefore: toMib(before), mebibytes: toMib(after) };
}

const toMib = (bytes: number): number => Math.round(bytes / 1_048_576);

function anUpdate(endpoint: { nodeId: string; ip: string; port: number }, nodes: object[]): string {
  return toJsonString(
    NetworkUpdateSchema,
    create(NetworkUpdateSchema, {
      ...{ revision: 1n, reset: true, complete: true },
      settings: { serviceCidr: '10.96.0.0/16', clusterDomain: 'cloudless.internal' },
      services: [
        {
          ...{ namespace: 'default', name: 'web', uid: 'web', clusterIp: '10.96.0.20' },
          spec: { ports: [{ name: 'http', port: 80 }] },
        },
      ],
      endpoints: [
        {
          ...{ id: 'default/web/r1', namespace: 'default', service: 'web', weight: 100 },
          ...{ nodeId: endpoint.nodeId, workload: 'web', replicaId: 'r1', ready: true },
          ports: [{ name: 'http', ip: endpoint.ip, port: endpoint.port }],
        },
      ],
      nodes,
    }),
  );
}

const aNode = (id: string, serial = '', address = '') => ({
  ...{ id, alive: true, acceptedSerials: [serial] },
  network: { address, hostId: id },
});

async function measureOneNode() {
  const host = '127.0.0.1';
  const server = await runOurs('server', host, false);
  const bind = { snapshotFile: join(directory, 'one'), bindAddress: host };
  const update = anUpdate({ nodeId: 'a', ip: host, port: server.port }, [aNode('a')]);
  const ours = await runProxy({ nodeId: 'a', update, ...bind }, false);
  const haproxyPort = 19_480;
  const haproxy = await runHaproxy(
    `listen l\n bind ${host}:${haproxyPort}\n server s ${host}:${server.port}`,
    false,
  );
  const oursPath = { host, port: ours.port, pids: [ours.pid] };
  return {
    direct: await measure('direct', { host, port: server.port, pids: [] }),
    ours: await measure('ours', oursPath),
    haproxy: await measure('haproxy', { host, port: haproxyPort, pids: [haproxy] }),
    idle: await measureIdle(oursPath),
  };
}

async function measureTwoNodes() {
  const server = await runOurs('server', FAR, true);
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
  const oursFar = await runProxy(
    {
      ...{ nodeId: 'b', identity: identityOf(far), update, bindAddress: FAR },
      ...{ meshListen: { host: FAR, port: MESH_PORT }, snapshotFile: join(directory, 'far') },
    },
    true,
  );
  const oursNear = await runProxy(
    {
      ...{ nodeId: 'a', identity: identityOf(near), update, bindAddress: NEAR },
      snapshotFile: join(directory, 'near'),
    },
    false,
  );
  const [pem, ca] = [join(directory, 'both.pem'), join(directory, 'ca.pem')];
  writeFileSync(pem, near.chainPem + near.keyPem, { mode: 0o600 });
  writeFileSync(ca, bundlePem);
  const haproxyFar = await runHaproxy(
    `listen l\n bind ${FAR}:${HAPROXY_TLS_PORT} ssl crt ${pem} ca-file ${ca} verify required ssl-min-ver TLSv1.3\n server s ${FAR}:${server.port}`,
    true,
  );
  const haproxyNear = await runHaproxy(
    `listen l\n bind ${NEAR}:19481\n server s ${FAR}:${HAPROXY_TLS_PORT} ssl crt ${pem} ca-file ${ca} verify required ssl-min-ver TLSv1.3`,
    false,
  );
  const ours = { host: NEAR, port: oursNear.port, pids: [oursNear.pid, oursFar.pid] };
  const haproxy = { host: NEAR, port: 19_481, pids: [haproxyNear, haproxyFar] };
  return {
    ours: await measure('ours over TLS', ours),
    haproxy: await measure('haproxy over TLS', haproxy),
    idle: await measureIdle(ours),
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
  for (const child of children.splice(0)) child.kill('SIGKILL');
  const isRoot = process.getuid?.() === 0;
  if (isRoot) {
    createNamespace();
    hasNamespace = true;
  }
  const twoNodes = isRoot ? await measureTwoNodes() : 'skipped: network namespaces need root';
  printReport('mesh', { oneNode, twoNodes });
} finally {
  for (const child of children) child.kill('SIGKILL');
  if (hasNamespace) ip('netns', 'delete', NAMESPACE);
  rmSync(directory, { recursive: true });
}
