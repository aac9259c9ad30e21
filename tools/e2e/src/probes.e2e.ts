import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { type EndpointSet, type ReplicaStatus, type Workload } from '@cloudless/api';
import type { ProbeSchema, WorkloadSpecSchema } from '@cloudless/api';
import { QUICK, RealCluster } from './support/cluster.js';

type Probe = Exclude<MessageInitShape<typeof ProbeSchema>, { $typeName: string }>;
type Spec = Exclude<MessageInitShape<typeof WorkloadSpecSchema>, { $typeName: string }>;

/**
 * Command of an HTTP server that answers each path with a status that a request to
 * `/set/<status>/<path>` sets; default 200.
 */
const SETTABLE_SERVER = [
  'node',
  '-e',
  `const statuses = new Map();
   const server = require('node:http').createServer(({ url }, response) => {
     const [, set, status, path] = url.split('/');
     if (set === 'set') statuses.set('/' + path, Number(status));
     response.writeHead(set === 'set' ? 200 : statuses.get(url) ?? 200).end();
   });
   server.listen(process.env.PORT, '127.0.0.1');
   process.on('SIGTERM', () => process.exit(0));`,
];

/**
 * Command of a gRPC health service that reports NOT_SERVING while the file of its argument exists.
 */
const GRPC_SERVER = [
  'node',
  '-e',
  `const http2 = require('node:http2'), fs = require('node:fs');
   http2.createServer().on('stream', (stream, headers) => {
     stream.resume();
     stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
     stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
     stream.end(Buffer.from([0, 0, 0, 0, 2, 8, fs.existsSync(process.argv[1]) ? 2 : 1]));
   }).listen(process.env.PORT, '127.0.0.1');
   process.on('SIGTERM', () => process.exit(0));`,
];

const ports = [{ name: 'http', containerPort: 80 }];
const quick = { period: durationFromMs(200), timeout: durationFromMs(5_000) };
const anHttpProbe = (path: string): Probe => ({
  check: { case: 'http', value: { port: 'http', path } },
  ...quick,
});

let cluster: RealCluster;
let directory: string;
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
  directory = await mkdtemp(join(tmpdir(), 'cloudless-probes-'));
});
afterAll(async () => {
  await cluster.stop();
  await rm(directory, { recursive: true, force: true });
});

const create = async (name: string, spec: Spec): Promise<Workload> => {
  await cluster.client.createWorkload({ name, spec: { ports, ...QUICK, ...spec } });
  return cluster.waitUntilSettled(name);
};
const requireFirst = ({ status }: Workload): ReplicaStatus => status!.replicas[0]!;
const setStatus = async (
  { endpoints }: ReplicaStatus,
  status: number,
  path: string,
): Promise<void> => {
  await fetch(`http://127.0.0.1:${endpoints[0]!.port}/set/${status}/${path}`);
};

/** Watches the endpoints of a workload until a condition holds, and returns them. */
async function waitForEndpoints(
  name: string,
  fits: (set: EndpointSet) => boolean,
): Promise<EndpointSet> {
  const watch = new AbortController();
  try {
    for await (const set of cluster.client.watchEndpoints({ name }, { signal: watch.signal }))
      if (fits(set)) return set;
  } finally {
    watch.abort();
  }
  throw new Error(`the watch of the endpoints of ${name} ended`);
}

describe('readiness probe', () => {
  it('removes a failing replica from the endpoints without a restart, until it is ready again', async () => {
    const before = await create('ready', {
      command: SETTABLE_SERVER,
      replicas: 2,
      readinessProbe: anHttpProbe('/healthz'),
    });
    const victim = requireFirst(before);
    const all = await waitForEndpoints('ready', ({ endpoints }) => endpoints.length === 2);
    await setStatus(victim, 503, 'healthz');
    const left = await waitForEndpoints('ready', ({ endpoints }) => endpoints.length === 1);
    expect(left.endpoints[0]?.port).not.toBe(victim.endpoints[0]?.port);
    const unready = await cluster.waitForWorkload(
      'ready',
      ({ status }) => status!.readyReplicas === 1,
    );
    const reason = 'readiness probe: HTTP 503 from /healthz, 3 of 3 failed';
    expect(unready.status!.replicas.find(({ id }) => id === victim.id)).toMatchObject({
      ready: false,
      reason,
      restarts: 0,
    });
    const described = await cluster.runCtl('describe', 'ready');
    expect(described.stdout).toContain(reason);
    expect(described.stdout).toMatch(
      /Readiness: +http:http\/healthz, every 200ms, timeout 5s, fails after 3\n/,
    );
    await setStatus(victim, 200, 'healthz');
    const back = await waitForEndpoints('ready', ({ endpoints }) => endpoints.length === 2);
    const listPorts = (set: EndpointSet): number[] => set.endpoints.map(({ port }) => port).sort();
    expect(listPorts(back)).toEqual(listPorts(all));
    expect(requireFirst(await cluster.waitUntilSettled('ready'))).toMatchObject({
      id: victim.id,
      restarts: 0,
      containerId: victim.containerId,
    });
  });

  it('makes replicas ready by TCP and gRPC checks, and unready by a gRPC check', async () => {
    const file = join(directory, 'not-serving');
    const grpc: Probe = { check: { case: 'grpc', value: { port: '80' } }, ...quick };
    await create('tcp', {
      command: SETTABLE_SERVER,
      readinessProbe: { check: { case: 'tcp', value: { port: 'http' } }, ...quick },
    });
    await create('grpc', { command: [...GRPC_SERVER, file], readinessProbe: grpc });
    await writeFile(file, '');
    const unready = await cluster.waitForWorkload(
      'grpc',
      ({ status }) => status!.readyReplicas === 0,
    );
    expect(requireFirst(unready).reason).toBe(
      'readiness probe: gRPC health NOT_SERVING, 3 of 3 failed',
    );
    await rm(file);
    expect(requireFirst(await cluster.waitUntilSettled('grpc')).restarts).toBe(0);
  });

  it('of a new version holds a rolling update, and the old replica serves, while it fails', async () => {
    const broken = { check: { case: 'tcp' as const, value: { port: 'other' } }, ...quick };
    const declared = [...ports, { name: 'other', containerPort: 81 }];
    const before = await create('rolled', {
      command: SETTABLE_SERVER,
      ports: declared,
      readinessProbe: anHttpProbe('/healthz'),
    });
    await cluster.client.updateWorkload({ name: 'rolled', spec: { readinessProbe: broken } });
    const both = await cluster.waitForWorkload('rolled', ({ status }) =>
      status!.replicas.some(
        ({ version, reason }) =>
          version === 2 && reason.includes('no connection to port other, 3 of 3 failed'),
      ),
    );
    expect(both.status!.replicas.find(({ id }) => id === requireFirst(before).id)).toMatchObject({
      ready: true,
      version: 1,
    });
    expect(
      (await waitForEndpoints('rolled', () => true)).endpoints.map(({ port }) => port),
    ).toContain(requireFirst(before).endpoints[0]!.port);
  });
});

describe('liveness probe', () => {
  it('restarts a container in place, with the reason in status and event', async () => {
    const before = requireFirst(
      await create('live', { command: SETTABLE_SERVER, livenessProbe: anHttpProbe('/livez') }),
    );
    await setStatus(before, 500, 'livez');
    const after = requireFirst(
      await cluster.waitForWorkload('live', ({ status }) =>
        status!.replicas.some(({ restarts, ready }) => restarts === 1 && ready),
      ),
    );
    const endReason = 'liveness probe: HTTP 500 from /livez, 3 of 3 failed (completed)';
    expect(after).toMatchObject({
      id: before.id,
      nodeId: before.nodeId,
      lastExitCode: 0,
      lastEndReason: endReason,
    });
    expect(after.containerId).not.toBe(before.containerId);
    const { events } = await cluster.client.listEvents({ workload: 'live' });
    expect(events.map(({ message }) => message)).toContain(
      `replica ${after.id} ended (${endReason}) and was restarted`,
    );
    expect((await cluster.runCtl('describe', 'live')).stdout).toContain(
      `(last ended: ${endReason})`,
    );
  });

  it('restarts a container by a command check when no coordinator runs', async () => {
    const file = join(directory, 'alive');
    await writeFile(file, '');
    const probe: Probe = {
      check: { case: 'exec', value: { command: ['test', '-f', file] } },
      ...quick,
    };
    // the program creates the file at its start, so that the check passes from then on
    const command = ['sh', '-c', `: > ${file}; exec sleep 1000`];
    const before = requireFirst(await create('file', { command, ports: [], livenessProbe: probe }));
    await cluster.coordinatorProcess.kill('SIGKILL');
    await rm(file);
    const texts = [`"replicaId":"${before.id}"`, '"restarts":1', '"ready":true'];
    await cluster
      .requireAgent(before.nodeId)
      .waitForLine((line) => texts.every((text) => line.includes(text)));
    await cluster.startCoordinator();
    const after = requireFirst(
      await cluster.waitForWorkload('file', ({ status }) =>
        status!.replicas.some(({ restarts, ready }) => restarts === 1 && ready),
      ),
    );
    expect(after.lastEndReason).toBe(
      'liveness probe: the command ended with exit code 1, 3 of 3 failed (killed by SIGTERM)',
    );
  });

  it('restarts a container that begins to fail it after the agent was killed and started again', async () => {
    const probes = {
      livenessProbe: anHttpProbe('/livez'),
      readinessProbe: anHttpProbe('/healthz'),
    };
    const before = requireFirst(await create('adopted', { command: SETTABLE_SERVER, ...probes }));
    await cluster.requireAgent(before.nodeId).kill('SIGKILL');
    await cluster.startAgent(before.nodeId, before.zone);
    const isAdopted = ({ containerId, ready, stale }: ReplicaStatus): boolean =>
      containerId === before.containerId && ready && !stale;
    await cluster.waitForWorkload('adopted', ({ status }) => status!.replicas.some(isAdopted));
    await setStatus(before, 500, 'livez');
    await cluster.waitForWorkload('adopted', ({ status }) =>
      status!.replicas.some(({ restarts, ready }) => restarts === 1 && ready),
    );
  });
});

it('examples/probes.yaml runs and shows its probes in describe', async () => {
  const applied = await cluster.runCtl(
    'apply',
    '-f',
    fileURLToPath(new URL('../../../examples/probes.yaml', import.meta.url)),
    '--wait',
  );
  expect(applied).toMatchObject({ code: 0, stderr: '' });
  const { stdout } = await cluster.runCtl('describe', 'probed');
  expect(stdout).toMatch(
    /Liveness: +http:http\/healthz, after 5s, every 10s, timeout 2s, fails after 3\n/,
  );
  expect(stdout).toMatch(/Readiness: +http:http\/ready, every 2s, timeout 1s, fails after 3\n/);
  expect((await waitForEndpoints('probed', () => true)).readyReplicas).toBe(2);
});

describe('startup probe', () => {
  it('holds back the liveness probe until the startup probe has succeeded', async () => {
    const file = join(directory, 'started');
    const startupProbe: Probe = {
      check: { case: 'exec', value: { command: ['test', '-f', file] } },
      ...quick,
      failureThreshold: 1_000,
    };
    const livenessProbe: Probe = {
      check: { case: 'exec', value: { command: ['false'] } },
      ...quick,
      failureThreshold: 1,
    };
    await cluster.client.createWorkload({
      name: 'slow',
      spec: { command: ['sleep', '1000'], ...QUICK, startupProbe, livenessProbe },
    });
    const waiting = await cluster.waitForWorkload('slow', ({ status }) =>
      status!.replicas.some(
        ({ reason }) => reason === 'startup probe: the command ended with exit code 1',
      ),
    );
    expect(requireFirst(waiting)).toMatchObject({ ready: false, restarts: 0 });
    await writeFile(file, '');
    await cluster.waitForWorkload('slow', ({ status }) =>
      status!.replicas.some(({ lastEndReason }) => lastEndReason.startsWith('liveness probe')),
    );
  });
});

describe('invalid probe', () => {
  it.each<{ name: string; spec: Spec; message: string }>([
    {
      name: 'a missing check',
      spec: { livenessProbe: quick },
      message: 'spec.liveness_probe: one of exec, http, tcp and grpc is required',
    },
    {
      name: 'an unknown port',
      spec: { readinessProbe: { check: { case: 'tcp', value: { port: 'web' } } } },
      message:
        'spec.readiness_probe.tcp.port: "web" is not a declared TCP port, by name or number (declared: http)',
    },
    {
      name: 'a liveness success threshold above 1',
      spec: { livenessProbe: { ...anHttpProbe('/'), successThreshold: 2 } },
      message: 'spec.liveness_probe.success_threshold: must be 1 here',
    },
    {
      name: 'a short period',
      spec: { startupProbe: { ...anHttpProbe('/'), period: durationFromMs(1) } },
      message: 'spec.startup_probe.period: must be from 0.100s to 86400s',
    },
    {
      name: 'an empty command',
      spec: { livenessProbe: { check: { case: 'exec', value: {} } } },
      message: 'spec.liveness_probe.exec.command: must not be empty',
    },
  ])('is rejected when it has $name', async ({ spec, message }) => {
    const attempt = cluster.client.createWorkload({
      name: 'wrong',
      spec: { command: ['sleep', '1'], ports, ...spec },
    });
    await expect(attempt).rejects.toMatchObject({ code: 3, rawMessage: message });
  });

  it('is rejected with the path of its field in a manifest', async () => {
    const manifest = `kind: Workload\nname: wrong\nspec:\n  command: [sleep, "1"]\n  readinessProbe: {http: {port: web, path: healthz}}\n`;
    const { code, stderr } = await cluster.runCtlWithInput(manifest, 'apply', '-f', '-');
    expect([code, stderr]).toEqual([
      expect.any(Number),
      expect.stringContaining('spec.readiness_probe.http.path: must begin with "/"'),
    ]);
    expect(code).not.toBe(0);
  });
});
