/**
 * Connections to the mesh address that never begin a TLS handshake, as fast as one process opens
 * them, while a node that has just started makes connections to a service through the same address.
 * Load only against this machine.
 *
 * Usage: mesh-half-open [--connections 50000]
 *
 * Ends with exit code 1 when more than 1 % of the exchanges of the node fail, or when the attack
 * takes 128 MiB or more of the attacked proxy.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { systemClock } from '@cloudless/app-kit';
import { TestAuthority } from '@cloudless/identity/testing';
import { aNode, anUpdate, BenchProcesses } from './mesh/bench-processes.js';
import { loadConnections } from './mesh/load.js';
import { readMemoryBytes } from './process-figures.js';
import { printReport } from './report.js';
import { Violations } from './violations.js';

const { values } = parseArgs({ options: { connections: { type: 'string', default: '50000' } } });
const HOST = '127.0.0.1';
const MESH_PORT = 19_445;
/** Addresses of the attacker: one address has too few ports. */
const SOURCES = ['127.0.1.1', '127.0.1.2', '127.0.1.3', '127.0.1.4'];
/** Connections that the attacker holds at a time, if the proxy lets the attacker. */
const MAX_HELD = 4_000;
const LIMIT_MIB = 128;
/** Largest share of the exchanges of the node that may fail. */
const LIMIT_FAILED = 0.01;
const directory = mkdtempSync(join(tmpdir(), 'mesh-half-open-'));
const processes = new BenchProcesses(directory, '');
const violations = new Violations();
const toMib = (bytes: number): number => Math.round(bytes / 1_048_576);

/** Opens silent connections, and gives the oldest up when there are too many. */
async function attack(count: number): Promise<{ opened: number; endedByProxy: number }> {
  const held = new Set<Socket>();
  let endedByProxy = 0;
  for (let index = 0; index < count; index += 1) {
    const localAddress = SOURCES[index % SOURCES.length] ?? HOST;
    const socket = connect({ host: HOST, port: MESH_PORT, localAddress });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      if (held.delete(socket)) endedByProxy += 1;
    });
    socket.resume();
    held.add(socket);
    await new Promise((resolve) => setImmediate(resolve));
    if (held.size <= MAX_HELD) continue;
    const [oldest] = held;
    if (oldest !== undefined && held.delete(oldest)) oldest.destroy();
  }
  for (const socket of [...held]) {
    held.delete(socket);
    socket.destroy();
  }
  return { opened: count, endedByProxy };
}

try {
  const authority = await TestAuthority.create({ nowMs: systemClock.wallTime() });
  const [near, far] = [await authority.issue('node', 'a'), await authority.issue('node', 'b')];
  const identityOf = ({ keyPem, chainPem }: typeof near) => ({
    ...{ keyPem, chainPem, bundlePem: authority.bundlePem, trustDomain: 'cloudless' },
  });
  const server = await processes.runOurs('server', HOST, false);
  const update = anUpdate({ nodeId: 'b', ip: HOST, port: server.port }, [
    aNode('a', near.serial),
    aNode('b', far.serial, `${HOST}:${MESH_PORT}`),
  ]);
  const attacked = await processes.runProxy(
    {
      ...{ nodeId: 'b', identity: identityOf(far), update, bindAddress: HOST },
      ...{ meshListen: { host: HOST, port: MESH_PORT }, snapshotFile: join(directory, 'b') },
    },
    false,
  );
  const before = readMemoryBytes(attacked.pid);
  let isOver = false;
  let most = before;
  const attacking = attack(Number(values.connections)).finally(() => (isOver = true));
  // The node starts during the attack, so that it has no connection yet.
  const startMs = systemClock.now();
  const client = await processes.runProxy(
    {
      ...{ nodeId: 'a', identity: identityOf(near), update, bindAddress: HOST },
      snapshotFile: join(directory, 'a'),
    },
    false,
  );
  const startedMs = systemClock.now() - startMs;
  let exchanges = 0;
  let failures = 0;
  let firstMs: number | undefined;
  while (!isOver) {
    const fromMs = systemClock.now();
    const isDone = await loadConnections({ host: HOST, port: client.port }, 1).then(
      () => true,
      () => false,
    );
    exchanges += 1;
    if (isDone) firstMs ??= Math.round(systemClock.now() - fromMs);
    else failures += 1;
    most = Math.max(most, readMemoryBytes(attacked.pid));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const attackResult = await attacking;
  const taken = toMib(most - before);
  violations.check(
    exchanges > 0 && failures <= LIMIT_FAILED * exchanges,
    `${failures} of ${exchanges} exchanges of the node failed`,
  );
  violations.check(taken < LIMIT_MIB, `the attack takes ${taken} MiB, the limit is ${LIMIT_MIB}`);
  printReport('mesh-half-open', {
    attack: { ...attackResult, seconds: Math.round((systemClock.now() - startMs) / 1_000) },
    node: { startedMs: Math.round(startedMs), exchanges, failures, firstMs },
    attacked: { mebibytesBefore: toMib(before), mebibytesTaken: taken },
    violations: violations.texts,
  });
  process.exitCode = violations.exitCode();
} finally {
  processes.endAll();
  rmSync(directory, { recursive: true });
}
